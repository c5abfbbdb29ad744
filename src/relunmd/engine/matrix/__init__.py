"""The user's matrix X, in memory or in a file, as blocks and tiles of rows. X is never changed."""

# ruff: noqa: F403
from relunmd.engine.matrix.csr import *
from relunmd.engine.matrix.dense import *
from relunmd.engine.matrix.layout import *
from relunmd.engine.matrix.matrix import *
from relunmd.engine.matrix.observation import *
from relunmd.engine.matrix.scratch import *
from relunmd.engine.matrix.source import *
from relunmd.engine.matrix.stored import *
from relunmd.engine.matrix.strip import *
