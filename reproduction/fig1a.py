"""Figure 1a: err(t) on 500 images of MNIST, 10 s."""

import numpy as np

from relunmd.comparison.report.content import Claim, Section
from relunmd.comparison.result_file import Results
from reproduction.curves import Curves, Drawn
from reproduction.experiment import Experiment, Setup, mnist, not_seen


def _curves(setup: Setup) -> Curves:
    images = mnist(setup, 50, every=10)
    return Curves("fig1a", images, 3, 2) if setup.quick else Curves("fig1a", images, 10, 5)


EARLY = "3B-NMD is ahead in the beginning (as soon as each has made an iteration)"
LATE = "A-NMD catches up and has the best solution of the six in the end"
BASELINE = "All six are far below the truncated SVD (by a quarter at least)"


def _section(setup: Setup, results: Results) -> Section:
    blocks, drawn = _curves(setup).blocks(setup, results)
    claims = _claims(drawn) if drawn is not None and drawn.has_all_six else not_seen(EARLY, LATE, BASELINE)
    title = f"Figure 1a: 500 images of MNIST, {_curves(setup).seconds:g} s"
    return Section("fig1a", title, blocks, claims, _curves(setup).finding(setup, results))


def _claims(drawn: Drawn) -> list[Claim]:
    # "The beginning" is a choice: at 1 % of the time A-NMD was just ahead in our first full run. So say until when.
    place = int(np.searchsorted(drawn.times, drawn.all_moving))
    early = {label: float(errors[place]) for label, errors in drawn.errors.items()}
    rival = min(error for label, error in early.items() if label != "3B-NMD")
    listed = ", ".join(f"{label} {early[label]:.4f}" for label in sorted(early, key=lambda label: early[label]))
    others = np.min([errors for label, errors in drawn.errors.items() if label != "3B-NMD"], axis=0)
    caught = np.flatnonzero(drawn.errors["3B-NMD"][place:] >= others[place:])
    until = f"it is caught up with at {drawn.times[place + caught[0]]:.3f} s" if len(caught) else "to the end"
    claims = [
        Claim(EARLY, early["3B-NMD"] < rival, f"after {drawn.times[place]:.3f} s: {listed}; {until}"),
        Claim(LATE, drawn.ranking()[0] == "A-NMD", drawn.final_errors()),
    ]
    if drawn.baseline is None:
        return claims + not_seen(BASELINE)
    worst = max(drawn.final.values())
    return [
        *claims,
        Claim(BASELINE, worst < 0.75 * drawn.baseline, f"the worst {worst:.4f}, TSVD {drawn.baseline:.4f}"),
    ]


FIGURE_1A = Experiment("fig1a", lambda setup: _curves(setup).runs(setup), _section)
