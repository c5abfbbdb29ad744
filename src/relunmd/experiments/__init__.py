"""The tables and figures of the paper."""

from relunmd.experiments.reproduction import EXPERIMENTS, reproduce

__all__ = ["EXPERIMENTS", "reproduce"]
