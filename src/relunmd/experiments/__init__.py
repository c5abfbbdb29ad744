"""The paper's tables and figures, made again: `python -m relunmd.experiments all --quick -o results`.

Every algorithm gets the same X and the same start, only its own work is timed, and it is scored in
float64 outside of that. Results are written as they come, so a run that was interrupted goes on where it
stopped. `register` lets a method of one's own take part in all of it.
"""

from relunmd.experiments.command import main
from relunmd.experiments.contenders import Contender, added, built_in, register, unregister
from relunmd.experiments.reproduction import EXPERIMENTS, reproduce

__all__ = ["EXPERIMENTS", "Contender", "added", "built_in", "main", "register", "reproduce", "unregister"]
