"""The tables and figures of the paper, reproduced with `relunmd.comparison`; run by `make reproduce` from a clone."""

from reproduction.all_experiments import EXPERIMENTS, reproduce

__all__ = ["EXPERIMENTS", "reproduce"]
