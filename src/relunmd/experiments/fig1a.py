"""Figure 1a: err(t) on 500 images of MNIST, 10 s."""

import numpy as np

from relunmd.experiments.curves import Curves
from relunmd.experiments.experiment import Experiment
from relunmd.experiments.plan import Setup, mnist
from relunmd.experiments.report import Claim, Section
from relunmd.experiments.results import Results

__all__ = ["FIGURE_1A"]


def _curves(setup: Setup) -> Curves:
    images = mnist(setup, 50, every=10)
    return Curves("fig1a", images, 3, 2) if setup.quick else Curves("fig1a", images, 10, 5)


def _section(setup: Setup, results: Results) -> Section:
    blocks, drawn = _curves(setup).blocks(setup, results)
    claims = []
    if drawn is not None and {"3B-NMD", "A-NMD"} <= drawn.final.keys():
        early = int(np.searchsorted(drawn.times, drawn.times[-1] / 100))
        first = min(drawn.errors, key=lambda label: drawn.errors[label][early])
        claims.append(
            Claim(
                "3B-NMD is ahead in the beginning",
                first == "3B-NMD",
                f"after {drawn.times[early]:.2f} s: "
                + ", ".join(f"{label} {drawn.errors[label][early]:.4f}" for label in ("3B-NMD", "A-NMD", "A-EM")),
            )
        )
        order = drawn.ranking()
        claims.append(
            Claim(
                "A-NMD catches up and has the best solution in the end",
                order[0] == "A-NMD",
                f"after {drawn.times[-1]:.0f} s: " + ", ".join(f"{label} {drawn.final[label]:.4f}" for label in order),
            )
        )
        if drawn.baseline is not None:
            worst = max(drawn.final.values())
            claims.append(
                Claim(
                    "All are far below the truncated SVD",
                    worst < 0.9 * drawn.baseline,
                    f"the worst {worst:.3f}, TSVD {drawn.baseline:.3f}",
                )
            )
    title = f"Figure 1a: 500 images of MNIST, {_curves(setup).seconds:g} s"
    return Section("fig1a", title, blocks, claims)


FIGURE_1A = Experiment("fig1a", lambda setup: _curves(setup).runs(setup), _section)
