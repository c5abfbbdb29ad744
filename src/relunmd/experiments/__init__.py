"""Algorithms side by side: on a matrix of one's own (`compare`), and on the paper's (`reproduce`).

Every algorithm gets the same X and the same start, only its own work is timed, and it is scored in float64 outside of
that. Results are written as they come, so a run that was interrupted goes on where it stopped, and end as a page that
can be mailed. `register` lets a method of one's own take part in all of it. On the command line: `relunmd compare` and
`relunmd reproduce`.
"""

from relunmd.experiments.comparing import compare
from relunmd.experiments.comparison import Comparison
from relunmd.experiments.contenders import Contender, added, built_in, register, registered, unregister
from relunmd.experiments.reproduction import EXPERIMENTS, reproduce

__all__ = [
    "EXPERIMENTS",
    "Comparison",
    "Contender",
    "added",
    "built_in",
    "compare",
    "register",
    "registered",
    "reproduce",
    "unregister",
]
