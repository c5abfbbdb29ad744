"""What the user has, seen as rows of X in blocks and tiles; validated once, never changed."""

from relunmd.matrix.block import Block, Scratch, Tile
from relunmd.matrix.dense import DenseMatrix
from relunmd.matrix.layout import RowLayout

__all__ = ["Block", "DenseMatrix", "RowLayout", "Scratch", "Tile"]
