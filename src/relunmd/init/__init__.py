"""Initializations: settings objects, each of which computes initial factors W and H."""

from relunmd.init.given import GivenInit
from relunmd.init.initialization import Init, RandomInit
from relunmd.init.nuclear import NuclearInit
from relunmd.init.spectral import AutoInit, MeanCorrectedInit, ShiftedInit, TSVDInit

__all__ = ["INITS", "GivenInit", "Init", "MeanCorrectedInit", "NuclearInit", "RandomInit", "ShiftedInit", "TSVDInit"]

INITS: dict[str, type[Init]] = {
    init.name: init for init in (RandomInit, TSVDInit, NuclearInit, MeanCorrectedInit, ShiftedInit, AutoInit)
}
