"""
What the ridge does
===================

Nothing in X ≈ max(0, WH) limits how negative WH is where X is zero. A ridge on W and H does; see what it costs in error
and what it gains for nearest neighbors of unseen rows.
"""

# %%
# The data
# --------
# Digits, with 600 of the 1797 images kept for testing.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from relunmd import ReLUNMD

X, y = load_digits(return_X_y=True)
X, X_new, y, y_new = train_test_split(X, y, test_size=600, stratify=y, random_state=0)

# %%
# Models of rank 16
# -----------------
# ‖WH‖ / ‖X‖ is about 1 for a truncated SVD. It is larger where negative entries of WH, which all stand for zero, are
# large. ``transform`` finds W for the unseen images, with the same ridge.

ridges = [0, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2]
models = [TruncatedSVD(16, algorithm="arpack", random_state=0)]
models += [ReLUNMD(16, ridge=ridge, random_state=0) for ridge in ridges]
results = []
print("model                 error  unseen  ‖WH‖/‖X‖  accuracy  iterations")
for model in models:
    W, H = model.fit_transform(X), model.components_
    W_new = model.transform(X_new)
    error = np.linalg.norm(X - np.maximum(0, W @ H)) / np.linalg.norm(X)
    unseen = np.linalg.norm(X_new - np.maximum(0, W_new @ H)) / np.linalg.norm(X_new)
    growth = np.linalg.norm(W @ H) / np.linalg.norm(X)
    accuracy = KNeighborsClassifier(5).fit(W, y).score(W_new, y_new)
    results.append((error, unseen, growth, accuracy))
    name = f"ReLUNMD, ridge={model.ridge:g}" if isinstance(model, ReLUNMD) else "TruncatedSVD"
    print(f"{name:21} {error:.3f}  {unseen:6.3f}  {growth:8.2f}  {accuracy:8.3f}  {getattr(model, 'n_iter_', '–'):>10}")

# %%
# Both panels are about the unseen rows: the error on the left, the accuracy of 5 nearest neighbors in W on the right.

svd, relu = results[0], np.array(results[1:])
fig, axes = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
for ax, column, label in [(axes[0], 1, "relative error of unseen rows"), (axes[1], 3, "accuracy on unseen rows")]:
    ax.plot(relu[:, column], "o-", color="#b30000", label="ReLUNMD")
    ax.axhline(svd[column], color="0.35", linestyle="--", label="TruncatedSVD")
    ax.set_xticks(range(len(ridges)), [f"{ridge:g}" for ridge in ridges])
    ax.set(xlabel="ridge", ylabel=label)
axes[0].set_ylim(0, None)
axes[0].legend(frameon=False, loc="lower right")
plt.show()

# %%
# Summary
# -------
# Without a ridge ‖WH‖ is 2.6 times ‖X‖, and with a ridge of 0.01 it is 1.07 times. The error of unseen rows grows from
# 0.159 to 0.165 at a ridge of 0.001 and to 0.188 at 0.01, and stays below the 0.214 of TruncatedSVD. The accuracy of
# nearest neighbors grows from 0.947 to 0.978 at 0.001, and TruncatedSVD is still ahead with 0.982 (0.003 are 2 of 600
# images). Use no ridge for reconstruction alone. Where rows of W are compared with each other, start with 0.01, or
# 0.001 if the error matters too.
