"""What the user has, seen as rows of X in blocks and tiles; validated once, never changed."""

from relunmd.matrix.block import Block, Tile
from relunmd.matrix.csr import CsrSource
from relunmd.matrix.dense import DenseSource
from relunmd.matrix.layout import RowLayout
from relunmd.matrix.matrix import Matrix, power_of_two_scale
from relunmd.matrix.scratch import Scratch, SumsPool
from relunmd.matrix.source import Source, library_of, refuse_masked
from relunmd.matrix.stored import StoredArray, StoredCsr, is_stored_array, is_stored_group
from relunmd.matrix.strip import Piece, Strip

__all__ = [
    "Block",
    "CsrSource",
    "DenseSource",
    "Matrix",
    "Piece",
    "RowLayout",
    "Scratch",
    "Source",
    "StoredArray",
    "StoredCsr",
    "Strip",
    "SumsPool",
    "Tile",
    "is_stored_array",
    "is_stored_group",
    "library_of",
    "power_of_two_scale",
    "refuse_masked",
]
