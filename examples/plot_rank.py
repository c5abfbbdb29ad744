"""
Finding a planted rank
======================

Generate matrices of known rank with noise, leave out entries, and see which rank predicts them best.
"""

# %%
# Data of rank 6
# --------------
# X = max(0, WH + noise), with 80 % zeros. The noise is a tenth of the size of the positive entries.

import matplotlib.pyplot as plt
import numpy as np

import relunmd
from relunmd import plot


def noisy(rank, zeros, seed):
    rng = np.random.default_rng(seed)
    Theta = rng.standard_normal((300, rank - 1)) @ rng.standard_normal((rank - 1, 200))
    Theta -= np.quantile(Theta, zeros)  # a constant component
    size = np.sqrt(np.mean(Theta[Theta > 0] ** 2))
    return np.maximum(0, Theta + 0.1 * size * rng.standard_normal(Theta.shape))


X = noisy(rank=6, zeros=0.8, seed=0)
found = relunmd.select_rank(X, random_state=0, n_jobs=-1)
print(found)

# %%
# The training error falls with every rank. The held-out error has its minimum at the true rank; ranks that are clearly
# too small or too large were dropped after the first fold and have no error bars.

ax = plot.rank_curve(found, title="rank 6, 80 % zeros")
plt.show()

# %%
# Harder data
# -----------
# With 95 % zeros and no ridge, ranks that are too small predict worse than zeros would: their errors are above 1. A
# small ridge prevents that. Both curves have their minimum at the true rank, 10.

Y = noisy(rank=10, zeros=0.95, seed=1)
hard = relunmd.select_rank(Y, [2, 4, 6, 8, 10, 12, 14, 16], ridges=[0, 1e-3], random_state=0, n_jobs=-1)
print(hard)
ax = plot.rank_curve(hard, title="rank 10, 95 % zeros")
plt.show()

# %%
# Ten matrices
# ------------
# The choice for other matrices of the same kind.

chosen = [relunmd.select_rank(noisy(6, 0.8, seed), refit=False, random_state=0, n_jobs=-1).rank for seed in range(10)]
print("chosen ranks:", chosen)

# %%
# Summary
# -------
# ``python -m benchmarks.rank planted`` does this for ranks 3, 6 and 12 and 50, 80 and 95 % zeros, with 400 × 300
# entries: 89 or 90 of 90 choices were within one of the truth. Real data have no true rank: the choice is the smallest
# rank that predicts about as well as any.
