"""The validation of X where entries are missing, limited or weighted: what is there, and what of it matters."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relunmd.engine import kernels
from relunmd.engine.executor import Executor, Rows, Sums
from relunmd.engine.matrix import Array, Block, Matrix, Observation, Tile
from relunmd.engine.matrix.source import read_only
from relunmd.errors import InputError

_SALTS = ("weights", "lower", "upper")
_GOLDEN = 0x9E3779B97F4A7C15
_VALID = {
    "weights": "finite and nonnegative",
    "lower": "finite and nonnegative",
    "upper": "positive and not NaN",
}


@dataclass(frozen=True)
class Scan:
    """What the first pass over X found; the counts are of entries that are not missing."""

    largest: float
    infinite: int
    negative: int
    nan: int
    missing: int
    checksum: int
    observation: Observation | None
    """What matters of what is known; None if nothing does."""


def scan(raw: Matrix, executor: Executor) -> Scan:
    """Look at every entry of X and of the matrices beside it; one pass."""
    known = raw.observation
    if known is None:
        _, sums = executor.run(raw, _scan_block)
        infinite, negative, nan, missing = (int(sums[name]) for name in _COUNTS)
        return Scan(max(sums["largest"]), infinite, negative, nan, missing, int(sums["checksum"][0]), None)
    _, sums = executor.run(raw, _known_block)
    for name in known.beside:
        if sums[f"{name}.wrong"]:
            raise InputError(f"{name} must be {_VALID[name]}; got other values in {sums[f'{name}.wrong']} entries.")
    if sums["crossed"]:
        raise InputError(f"lower must be below upper; got {sums['crossed']} entries where it is not.")
    missing, largest_weight = int(sums["missing"]), max(sums.get("weights.largest", []), default=1.0)
    # Drop what has no effect: an empty mask, equal weights, limits of 0 or infinity.
    differs = {
        name: max(sums[f"{name}.largest"], default=0) > min(sums[f"{name}.smallest"], default=0)
        for name in known.beside
    }
    differs |= {name: max(sums[f"{name}.largest"]) > 0 for name in known.beside if name in ("mask", "lower")}
    differs |= {"upper": min(sums["upper.smallest"]) < np.inf} if "upper" in known.beside else {}
    beside = [name for name in known.beside if differs[name]]
    checksum = int(sums["checksum"][0]) + sum(int(sums[f"{name}.checksum"][0]) for name in beside)
    nan = known.nan and bool(sums["nan"])
    matters = replace(known, nan=nan, beside=tuple(beside), largest_weight=largest_weight or 1.0)
    return Scan(
        max(sums["largest"]),
        int(sums["infinite"]),
        int(sums["negative"]),
        0 if known.nan else int(sums["nan"]),
        missing,
        (checksum + _of_limits(matters, raw.dtype)) % 2**64,
        None if matters.plain else matters,
    )


_COUNTS = ("infinite", "negative", "nan", "missing")


def _of_limits(known: Observation, dtype: np.dtype[Any]) -> int:
    """Return a checksum of what applies to all rows; 0 if nothing does."""
    n, total = known.lower.shape[1], int(known.stored_only)
    for index, limits in enumerate((known.lower, np.where(np.isfinite(known.upper), known.upper, 0.0))):
        with np.errstate(over="ignore"):
            total += kernels.scan(read_only(limits.astype(dtype)), index + 1, 0, n)[3]
    return total


def _scan_block(x: Block, rows: Rows, out: Rows) -> Sums:
    found = _Found()
    for at in x.strips:
        for tile in x.across(at):
            found.add(tile.X, x.rows.start + at.start, tile.columns.start, x.n_columns)
    return found.sums()


class _Found:
    """The sums of `kernels.scan` over tiles."""

    def __init__(self) -> None:
        self.largest, self.counts, self.checksum = 0.0, dict.fromkeys(_COUNTS, 0), np.zeros(1, np.uint64)

    def add(self, X: Array, row: int, column: int, n_columns: int) -> None:
        with np.errstate(over="ignore"):  # Sums modulo 2⁶⁴, where numba is turned off.
            largest, infinite, negative, checksum, nan = kernels.scan(read_only(X), row, column, n_columns)
            self.checksum += np.uint64(checksum)
        self.largest = max(self.largest, float(largest))
        for name, count in (("infinite", infinite), ("negative", negative), ("nan", nan)):
            self.counts[name] += count

    def sums(self) -> Sums:
        return {"largest": [self.largest], "checksum": self.checksum, **self.counts}


def _known_block(x: Block, rows: Rows, out: Rows) -> Sums:
    found = _Found()
    sums: Sums = {"crossed": 0}
    observation = x.matrix.observation
    names = () if observation is None else observation.beside
    for name in names:
        sums |= {f"{name}.wrong": 0, f"{name}.checksum": np.zeros(1, np.uint64)}
        sums |= {f"{name}.largest": [], f"{name}.smallest": []}
    for at in x.strips:
        for tile in x.across(at):
            if x.matrix.stored_only:
                _add_stored(found, sums, x, tile)
            else:
                _add_tile(found, sums, x, tile, names)
    return found.sums() | sums


def _add_tile(found: _Found, sums: Sums, x: Block, tile: Tile, names: tuple[str, ...]) -> None:
    known, X = tile.general, tile.X
    row, column, n = x.rows.start + tile.rows.start, tile.columns.start, x.n_columns
    hidden = np.zeros(X.shape, bool)
    for name in names:
        A = np.ascontiguousarray(getattr(known, name), x.matrix.dtype)
        wrong = np.isnan(A) | (A < 0) | (np.isinf(A) & (name != "upper"))
        sums[f"{name}.wrong"] += int(wrong.sum())
        _add_range(sums, name, A)
        if name in ("mask", "weights"):
            hidden |= A != 0 if name == "mask" else A == 0
        if name != "mask":  # Masked entries are NaN in the checksum of X.
            with np.errstate(over="ignore"):
                places = kernels.scan(read_only(np.where(np.isinf(A), 0, A)), row, column, n)[3]
                sums[f"{name}.checksum"] += np.uint64(places) * np.uint64(2 * _SALTS.index(name) + 3)
    if len(known.upper) and {"lower", "upper"} & {*names}:
        sums["crossed"] += int((known.lower >= known.upper).sum())
    found.counts["missing"] += int((hidden | np.isnan(X)).sum())
    # What is masked counts as NaN in the checksum, so that its value has no part in it.
    nan_before = found.counts["nan"]
    found.add(np.where(hidden, X.dtype.type(np.nan), X) if hidden.any() else X, row, column, n)
    found.counts["nan"] = nan_before + int((np.isnan(X) & ~hidden).sum())


def _add_range(sums: Sums, name: str, A: Array) -> None:
    sums[f"{name}.largest"].append(float(A.max(initial=0.0)))
    sums[f"{name}.smallest"].append(float(A.min(initial=np.inf)))


def _add_stored(found: _Found, sums: Sums, x: Block, tile: Tile) -> None:
    """Add stored entries alone; their places are part of the checksum, also those of zeros."""
    stored = tile.stored()
    values, columns, starts = stored.rows
    height = len(starts) - 1
    rows = np.repeat(np.arange(height, dtype=np.uint64), np.diff(starts))
    w = stored.weights.astype(np.float64) if len(stored.weights) else np.ones(len(values))
    seen = w != 0
    x64, w = values[seen].astype(np.float64), w[seen]
    with np.errstate(over="ignore"):
        first = rows[seen] + np.uint64(x.rows.start + tile.rows.start)
        places = first * np.uint64(x.n_columns) + columns[seen].astype(np.uint64)
        keys = _mixed(places * np.uint64(_GOLDEN) + np.uint64(1))
        found.checksum += _mixed(keys ^ x64.view(np.uint64)).sum(dtype=np.uint64)
        if len(stored.weights):
            sums["weights.wrong"] += int((~np.isfinite(w) | (w < 0)).sum())
            sums["weights.checksum"] += _mixed(~keys ^ w.view(np.uint64)).sum(dtype=np.uint64)
            _add_range(sums, "weights", stored.weights)
    found.largest = max(found.largest, float(x64[np.isfinite(x64)].max(initial=0.0)))
    found.counts["nan"] += int(np.isnan(x64).sum())
    found.counts["infinite"] += int(np.isinf(x64).sum())
    found.counts["negative"] += int((x64 < 0).sum())
    found.counts["missing"] += height * x.n_columns - len(x64)


def _mixed(z: Array) -> Array:
    """Return the finalizer of SplitMix64, as the kernels have it."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def known_moments(matrix: Matrix, executor: Executor) -> dict[str, Any]:
    """Return the sums that `Facts` has, of entries that are not missing, with their weights; one pass."""
    _, sums = executor.run(matrix, _moments_block)
    mean = sums["total"] / sums["positives.weight"] if sums["positives.weight"] else 0.0
    weight, positive, values = sums["columns"]
    share = np.divide(1.0, weight, out=np.zeros_like(weight), where=weight > 0)
    overall = float(values.sum() / max(weight.sum(), 1e-300))
    plain = np.where(weight > 0, values * share, overall)
    lowered = np.where(weight > 0, (values - mean * (weight - positive)) * share, plain - mean)
    kept = {name: sums[name] for name in ("total", "squares", "positives", "known")}
    return kept | {"means": np.stack([plain, lowered])}


def _moments_block(x: Block, rows: Rows, out: Rows) -> Sums:
    totals, columns = np.zeros(5), x.sums((3, x.n_columns))
    for at in x.strips:
        for tile in x.across(at):
            lo, w, at_columns = _least(tile)
            seen = lo > 0
            totals += (w * lo).sum(), (w * lo * lo).sum(), int(seen.sum()), w[seen].sum(), int((w > 0).sum())
            for index, A in enumerate((w, w * seen, w * lo)):
                if at_columns is None:
                    columns[index, tile.columns] += A.sum(axis=0)
                else:
                    columns[index] += np.bincount(at_columns, A, x.n_columns)
    names = ("total", "squares", "positives", "positives.weight", "known")
    return dict(zip(names, totals.tolist(), strict=True)) | {"columns": columns}


def _least(tile: Tile) -> tuple[Array, Array, Array | None]:
    """Return the end of each interval nearest to 0 and the weights, of the tile or of its stored entries."""
    if not tile.matrix.stored_only:
        lo, _, w = tile.bounds()
        return np.maximum(lo, 0).astype(np.float64), w.astype(np.float64), None
    stored = tile.stored()
    lo, hi = (np.empty(len(stored.rows.values), tile.matrix.dtype) for _ in range(2))
    kernels.stored_bounds(stored, lo, hi)
    w = stored.weights if len(stored.weights) else np.ones(len(lo))
    lo = np.where(w > 0, np.maximum(lo, 0), 0)
    return lo.astype(np.float64), w.astype(np.float64), stored.rows.columns
