"""What the user has, seen as rows of X in blocks and tiles; validated once, never changed."""

from relunmd.engine.matrix.block import Block, Tile
from relunmd.engine.matrix.csr import CsrSource
from relunmd.engine.matrix.dense import DenseSource
from relunmd.engine.matrix.layout import RowLayout
from relunmd.engine.matrix.matrix import Matrix, power_of_two_scale
from relunmd.engine.matrix.scratch import Scratch, SumsPool
from relunmd.engine.matrix.source import Source, refuse_masked
from relunmd.engine.matrix.stored import StoredArray, StoredCsr, is_stored_array, is_stored_group
from relunmd.engine.matrix.strip import Piece, Strip

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
    "power_of_two_scale",
    "refuse_masked",
]
