"""Settings of algorithms and initializations: dataclass fields that carry their bounds."""

import math
import operator
from collections.abc import Mapping
from dataclasses import field, fields
from numbers import Integral, Real
from typing import Any, get_type_hints

import numpy as np

from relunmd.errors import InputError


def setting(
    default: Any, *, ge: float | None = None, gt: float | None = None, le: float | None = None, lt: float | None = None
) -> Any:
    """Declare a setting with its default and its bounds.

    Parameters
    ----------
    default : bool, int or float
        Default value.
    ge : float, optional
        Smallest value allowed.
    gt : float, optional
        Value that the setting must exceed.
    le : float, optional
        Largest value allowed.
    lt : float, optional
        Value that the setting must stay below.

    Returns
    -------
    dataclasses.Field
        A field for the body of a frozen dataclass.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import relunmd
    >>> @dataclass(frozen=True)
    ... class Bolder(relunmd.ThreeBlock):
    ...     beta: float = relunmd.setting(0.9, ge=0, lt=1)
    >>> Bolder().beta
    0.9

    Settings are checked when the object is made:

    >>> from relunmd import ThreeBlock
    >>> ThreeBlock(beta=1)
    Traceback (most recent call last):
    relunmd.errors.InputError: beta of ThreeBlock must be a number in [0, 1); got 1.
    """
    bounds = {"ge": ge, "gt": gt, "le": le, "lt": lt}
    return field(default=default, metadata={k: v for k, v in bounds.items() if v is not None})


def check_settings(owner: Any) -> None:
    """Convert every setting to its declared type; raise InputError unless it lies within its bounds."""
    types, name = get_type_hints(type(owner)), type(owner).__name__
    for one in fields(owner):
        value, kind = getattr(owner, one.name), types[one.name]
        if kind is bool and not isinstance(value, bool | np.bool_):
            raise InputError(f"{one.name} of {name} must be True or False; got {value!r}.")
        number = {int: Integral, float: Real}.get(kind)
        if number and (isinstance(value, bool) or not isinstance(value, number) or not _within(value, one.metadata)):
            noun = "an integer" if kind is int else "a number"
            raise InputError(f"{one.name} of {name} must be {noun} {_described(one.metadata)}; got {value!r}.")
        if kind in (bool, int, float):
            object.__setattr__(owner, one.name, kind(value))


def _within(value: Any, bounds: Mapping[str, Any]) -> bool:
    tests = {"ge": operator.ge, "gt": operator.gt, "le": operator.le, "lt": operator.lt}
    bounded = all(test(value, bounds[name]) for name, test in tests.items() if bounds.get(name) is not None)
    return bounded and -math.inf < value < math.inf


def _described(bounds: Mapping[str, Any]) -> str:
    if set(bounds) <= {"ge"}:
        return f"of at least {bounds['ge']}" if bounds else "that is finite"
    if set(bounds) == {"gt"}:
        return f"above {bounds['gt']}"
    low = f"({bounds.get('gt', -math.inf)}" if "ge" not in bounds else f"[{bounds['ge']}"
    high = f"{bounds.get('lt', math.inf)})" if "le" not in bounds else f"{bounds['le']}]"
    return f"in {low}, {high}"
