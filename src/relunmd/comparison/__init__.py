"""Algorithms side by side on a matrix of your own; see `relunmd.compare`.

Every algorithm gets the same X and the same initial factors. Only its own work is timed, and it is scored in float64
outside of that. Results are written as they come, so an interrupted comparison resumes where it stopped. `register`
adds a method of your own to all comparisons. On the command line: ``relunmd compare``.
"""

from relunmd.comparison.comparison_result import Comparison
from relunmd.comparison.contenders import Contender, built_in, register, registered, unregister
from relunmd.comparison.matrix_comparison import compare

__all__ = ["Comparison", "Contender", "built_in", "compare", "register", "registered", "unregister"]
