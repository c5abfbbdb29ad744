"""The checkpoint of `select_rank`: the fits so far, written atomically after each, and what they belong to."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from relunmd.engine.matrix import Array
from relunmd.engine.problem import Fingerprint
from relunmd.errors import InputError
from relunmd.io.archive import amount, count, file_errors, plain, read_archive, write_archive
from relunmd.io.atomic import remove_partials
from relunmd.io.file_lock import FileLock
from relunmd.selection.rank_selection import FoldFit

log = logging.getLogger("relunmd")

_KIND, _VERSION = "rank selection", 1


class SelectionFile:
    """The file of a search, or nothing if `place` is None."""

    def __init__(self, place: Path | None, fingerprint: Fingerprint, identity: Mapping[str, Any]) -> None:
        self._place, self._fingerprint, self._identity = place, fingerprint, plain(identity)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the file; raise InputError if another search has it."""
        if self._place is None:
            yield
            return
        with FileLock(self._place).held():
            remove_partials(self._place)
            yield

    def read(self) -> tuple[list[FoldFit], dict[str, Array], int | None]:
        """Return the fits so far, the components of the first fold, and the seed; nothing if there is no file."""
        if self._place is None or not self._place.exists():
            return [], {}, None
        about, arrays = read_archive(self._place, _KIND, _VERSION)
        with file_errors(self._place, _KIND):
            other = dict(about["identity"])
            seed = count(other["seed"], "seed")
            if self._identity["seed"] is None:  # Without a seed any is accepted.
                other["seed"] = None
            differing = [
                f"{name}: checkpoint has {other.get(name)!r}, this call has {own!r}"
                for name, own in self._identity.items()
                if other.get(name) != own
            ]
            if self._fingerprint.differences(Fingerprint.from_json(about["fingerprint"])):
                differing.insert(0, "X is another matrix")
            if differing:
                raise InputError(f"checkpoint must be of the same search. {self._place}: {'; '.join(differing)}.")
            fits = [_fit(found) for found in about["fits"]]
        log.info("Resuming from %s: %d fits", self._place, len(fits))
        return fits, arrays, seed

    def write(self, fits: list[FoldFit], components: Mapping[str, Array], seed: int) -> None:
        """Write the fits so far."""
        if self._place is None:
            return
        about = {"fingerprint": asdict(self._fingerprint), "identity": self._identity | {"seed": seed}}
        try:
            write_archive(self._place, _KIND, _VERSION, about | {"fits": [asdict(fit) for fit in fits]}, components)
        except OSError as reason:
            log.warning("The checkpoint %s could not be written, and the search continues: %s", self._place, reason)


def _fit(found: Mapping[str, Any]) -> FoldFit:
    stability = found["stability"]
    return FoldFit(
        fold=count(found["fold"], "fold"),
        rank=count(found["rank"], "rank"),
        ridge=amount(found["ridge"], "ridge"),
        error=amount(found["error"], "error"),
        training_error=amount(found["training_error"], "training_error"),
        n_iter=count(found["n_iter"], "n_iter"),
        seconds=amount(found["seconds"], "seconds"),
        stability=None if stability is None else float(np.clip(stability, 0, 1)),
    )
