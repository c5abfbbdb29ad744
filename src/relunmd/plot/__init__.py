"""Figures of decompositions and comparisons on Matplotlib axes.

Every function draws on the given Axes, or on those of a new figure, and returns them. An algorithm has the same color,
dash pattern and marker in all figures; they differ in lightness, so they remain distinguishable in grayscale.

>>> import relunmd
>>> from relunmd import datasets, plot
>>> digits = datasets.digits()[:100]
>>> runs = [relunmd.decompose(digits, 8, name, random_state=0, max_iter=20) for name in ("qn", "3b")]
>>> ax = plot.convergence(runs)
>>> [text.get_text() for text in ax.get_legend().get_texts()]
['qn', '3B-NMD']
"""

from relunmd.plot.curves import convergence, error_by_rank, spectrum
from relunmd.plot.image_sheets import components, reconstructions
from relunmd.plot.rank_curves import rank_curve

__all__ = ["components", "convergence", "error_by_rank", "rank_curve", "reconstructions", "spectrum"]
