"""
The identity matrix at rank 3
=============================

The identity matrix of any size has an exact ReLU decomposition of rank 3 (`Saul 2022
<https://doi.org/10.1137/21M1405769>`_). Find it numerically, and see in the factors why it exists.
"""

# %%
# Find the decomposition
# ----------------------
# All singular values of the identity are 1, so a truncated SVD of rank 3 keeps 3 of 20 of them: its relative error is
# √(1 − 3/20), and a little less once its negative entries are set to zero. Small, exact problems like this one need
# many iterations: ``tol=0`` disables the stopping criterion for slow progress, and ``target_error`` stops the run at a
# small error.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import SymLogNorm

import relunmd

n = 20
X = np.eye(n)
svd = relunmd.decompose(X, rank=3, algorithm="tsvd")
d = relunmd.decompose(X, rank=3, tol=0, max_iter=10_000, target_error=1e-6, random_state=0)
print(f"truncated SVD: relative error {svd.error:.3f}; {np.sqrt(1 - 3 / n):.3f} with its negative entries")
print(f"relunmd:       relative error {d.error:.0e} after {d.n_iter} iterations ({d.status.name})")

# %%
# Points and half-planes
# ----------------------
# Take n points in the plane, such that each is a corner of their convex hull; points on an ellipse, say. For each
# point there is a line with this point on one side and all others on the other side. With column j of H as point j
# (in homogeneous coordinates, hence rank 3) and row i of W as line i, entry (i, j) of WH is positive if point j is on
# the positive side of line i, which is so for j = i only.
#
# The factors found above have this form. All column sums of WH are negative, so ``-W.sum(axis=0)`` has a positive
# product with every column of H, and can serve as the homogeneous coordinate by which the columns are divided.

W, H = d.W, d.H
columns = H / (-W.sum(axis=0) @ H)
center = columns.mean(axis=1, keepdims=True)
points, scale, axes = np.linalg.svd((columns - center).T, full_matrices=False)
points = points[:, :2]  # the columns lie in a plane: the third singular value is zero
normals = (W @ axes[:2].T) * scale[:2]  # line i is {p : normals[i] @ p + offsets[i] = 0}
offsets = (W @ center)[:, 0]

# %%
# Rows and columns are sorted by the angle of the points; the identity is the same in any order. The more negative an
# entry of WH, the farther the point is from the line.

order = np.argsort(np.arctan2(*points.T))
Theta = (W @ H)[np.ix_(order, order)]
fig, (left, middle, right) = plt.subplots(1, 3, figsize=(8, 3), layout="constrained")
image = left.imshow(Theta, cmap="gray", norm=SymLogNorm(1, vmin=-1e4, vmax=1))
fig.colorbar(image, ax=left, shrink=0.7, ticks=[-1e4, -1e2, -1, 1], format="{x:g}")
left.set_title("WH")
middle.imshow(np.maximum(0, Theta), cmap="gray_r")
middle.set_title("max(0, WH)")
for normal, offset in zip(normals, offsets, strict=True):
    foot = -offset * normal / (normal @ normal)
    right.axline(foot, foot + np.array([-normal[1], normal[0]]), color="0.75", lw=0.8)
right.plot(*points.T, "o", color="#b30000", markersize=4)
right.set(title="points (H) and lines (W)", xlim=(-0.45, 0.45), ylim=(-0.45, 0.45), aspect="equal")
for ax in (left, middle, right):
    ax.set(xticks=[], yticks=[])
plt.show()

# %%
# Local minima
# ------------
# The problem is not convex, and a run may end in a local minimum. ``n_starts`` races several initializations: the first
# is the default, the others are random.

X = np.eye(9)
options = {"rank": 3, "tol": 0, "max_iter": 2000, "target_error": 1e-6, "random_state": 0}
one = relunmd.decompose(X, **options)
raced = relunmd.decompose(X, **options, n_starts=8)
print(f"size 9, n_starts=1: relative error {one.error:.3f} after {one.n_iter} iterations ({one.status.name})")
print(f"size 9, n_starts=8: relative error {raced.error:.0e} after {raced.n_iter} iterations ({raced.status.name})")

# %%
# Summary
# -------
# A matrix of full rank may be exact at rank 3 after max(0, ·): here the relative error falls below 10⁻⁶, where the
# truncated SVD stays at 0.90. Such problems have local minima. At size 9 the default initialization ends at an error
# of 0.21, and one of eight initializations reaches the exact decomposition.
