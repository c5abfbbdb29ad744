"""
Limits of detection
===================

Measurements below a limit of detection are neither zero nor missing at random: they are known to be small. Predict them
from the other measurements, and see how far from the truth the usual substitutes are.
"""

# %%
# The data
# --------
# If the environment variable RELUNMD_DATA names a folder with ``proteomics/hela_protein_groups.csv.gz``, these are the
# intensities of 400 proteins in 50 runs on HeLa cells (Webel et al., 2024, doi:10.1038/s41597-024-02922-z), as
# logarithms to base 2, minus 20. Empty cells of the file are NaN; proteins that were found in all runs are used, so
# that the truth is known. Otherwise the data are generated.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import relunmd
from relunmd import LowRankImputer

path = Path(os.environ.get("RELUNMD_DATA", ".")) / "proteomics" / "hela_protein_groups.csv.gz"
if path.exists():
    with relunmd.open_matrix(path, names="both") as opened:
        table = np.asarray(opened.X)
    name, X = "HeLa proteins", np.log2(table[:, ~np.isnan(table).any(axis=0)])[:, :400] - 20
else:
    rng = np.random.default_rng(0)
    X = 8 + rng.standard_normal((50, 3)) @ rng.standard_normal((3, 400)) + 0.4 * rng.standard_normal((50, 400))
    name, X = "generated data", np.maximum(X, 0)
print(f"{name}: {X.shape[0]} × {X.shape[1]}, from {X.min():.1f} to {X.max():.1f}")

# %%
# A limit for each protein
# ------------------------
# Everything below the 25 % quantile of its column is replaced by 0, and ``lower`` says where the limits are. What is in
# the place of such a value does not matter, as long as it is not above the limit.

limit = np.quantile(X, 0.25, axis=0)
below = limit > X
measured = np.where(below, 0, X)
imputer = LowRankImputer(3, lower=limit, random_state=0).fit(measured)
predicted = {
    "limit / √2": np.broadcast_to(limit / np.sqrt(2), X.shape),
    "missing at random": LowRankImputer(3, random_state=0).fit_transform(np.where(below, np.nan, X)),
    "limit of detection": imputer.transform(measured),
}
for label, values in predicted.items():
    error = np.linalg.norm((values - X)[below]) / np.linalg.norm(X[below])
    print(f"{label:20} relative error {error:.3f}, mean difference {np.mean((values - X)[below]):+.2f}")

# %%
# Substitutes are far too small, and values that are taken for missing at random come out too large. With the limits the
# predictions stay below them, by what the noise of the measured values suggests.

fig, axes = plt.subplots(1, 3, figsize=(9, 3.4), sharex=True, sharey=True, layout="constrained")
for ax, (label, values) in zip(axes, predicted.items(), strict=True):
    ax.plot(X[below], values[below], ".", color="#b30000", markersize=2, alpha=0.3)
    ax.axline((8, 8), slope=1, color="0.3", linewidth=1)
    ax.set(title=label, xlabel="true value")
axes[0].set_ylabel("predicted value")
plt.show()

# %%
# Standard errors
# ---------------
# ``standard_error`` is 0 for measured values and at most ``noise_`` for the others. It is that of a normal distribution
# cut off at the limit, given W and H; their own uncertainty is not part of it.

error = imputer.standard_error(measured)
away = np.abs(predicted["limit of detection"] - X)[below] / error[below]
print(f"noise {imputer.noise_:.2f}; {np.mean(away < 2):.0%} of the predictions are within two standard errors")
