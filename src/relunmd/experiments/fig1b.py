"""Figure 1b: err(t) on 50 000 images of MNIST, 20 s."""

from relunmd.experiments.curves import Curves
from relunmd.experiments.experiment import Experiment
from relunmd.experiments.plan import Setup, mnist
from relunmd.experiments.report import Claim, Section
from relunmd.experiments.results import Results

__all__ = ["FIGURE_1B"]


def _curves(setup: Setup) -> Curves:
    if setup.quick:
        return Curves("fig1b", mnist(setup, 500), 4, 1)
    return Curves("fig1b", mnist(setup, 5000), 20, 3)


def _section(setup: Setup, results: Results) -> Section:
    curves = _curves(setup)
    blocks, drawn = curves.blocks(setup, results)
    claims = []
    if drawn is not None and {"3B-NMD", "A-NMD", "A-EM"} <= drawn.final.keys():
        order = drawn.ranking()
        figures = f"after {drawn.times[-1]:.0f} s: " + ", ".join(f"{label} {drawn.final[label]:.4f}" for label in order)
        claims.append(Claim("3B-NMD is ahead, A-NMD has no time to catch up", order[0] == "3B-NMD", figures))
        both = max(drawn.final["3B-NMD"], drawn.final["A-NMD"])
        claims.append(Claim("3B-NMD and A-NMD both outperform A-EM", both < drawn.final["A-EM"], figures))
    title = f"Figure 1b: {curves.matrix.shape[0]} images of MNIST, {curves.seconds:g} s"
    return Section("fig1b", title, blocks, claims)


FIGURE_1B = Experiment("fig1b", lambda setup: _curves(setup).runs(setup), _section)
