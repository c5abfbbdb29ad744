"""
A matrix on disk: Zarr, checkpoints and resuming
================================================

Decompose a Zarr array that is never loaded as a whole, save a checkpoint, and resume the run with more iterations.
"""

# %%
# A store, written chunk by chunk
# -------------------------------
# The entries are max(0, WH + noise) for random W and H of rank 8. A chunk has 1000 rows, which are generated and
# written before the next ones.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import zarr

import relunmd

folder = tempfile.TemporaryDirectory()
m, n, rank, rows = 25_000, 1000, 8, 1000
rng = np.random.default_rng(0)
H = rng.standard_normal((rank, n))
X = zarr.create_array(Path(folder.name) / "X.zarr", shape=(m, n), chunks=(rows, n), dtype="float32")
for start in range(0, m, rows):
    Theta = rng.standard_normal((rows, rank)) @ H - 2
    X[start : start + rows] = np.round(np.maximum(0, Theta + 0.3 * rng.standard_normal(Theta.shape)), 2)

stored = sum(file.stat().st_size for file in Path(folder.name).rglob("*") if file.is_file())
print(f"X: {m} × {n} {X.dtype}, {X.nbytes / 1e6:.0f} MB unpacked, {stored / 1e6:.0f} MB on disk in {X.nchunks} chunks")
print(f"32 MB are {2**25 // (n * X.dtype.itemsize)} of its {m} rows")

# %%
# A run that ends early
# ---------------------
# ``decompose`` takes the Zarr array itself. Each thread reads about 32 MB of rows at a time, and an iteration is one
# pass over X. The checkpoint is written every ``checkpoint_every`` seconds, and at the end whatever ended the run.

options = {"rank": rank, "tol": 0, "random_state": 0, "n_jobs": -1}
checkpoint = Path(folder.name) / "run.npz"
first = relunmd.decompose(X, max_iter=10, checkpoint=checkpoint, **options)
print(f"iteration {first.n_iter}: relative error {first.error:.4f} ({first.status.name})")
print(f"checkpoint: {checkpoint.stat().st_size / 1e6:.1f} MB")

# %%
# Resume
# ------
# The same call with a larger ``max_iter`` resumes from the checkpoint, and ends with the same bits as a run without an
# interruption. Its history has both parts.

d = relunmd.decompose(X, max_iter=25, checkpoint=checkpoint, **options)
print(f"iteration {d.n_iter}: relative error {d.error:.4f} ({d.status.name})")
print("begins with the history of the first run:", np.array_equal(d.history.error[:11], first.history.error))

# %%

fig, ax = plt.subplots(figsize=(8, 3.5), layout="constrained")
ax.plot(d.history.iteration, d.history.error, "s--", color="0.5", markersize=5, label="resumed run")
ax.plot(first.history.iteration, first.history.error, "o-", color="#b30000", markersize=5, label="first run")
ax.axvline(first.n_iter, color="0.5", linewidth=1)
ax.annotate("checkpoint", (first.n_iter, 0.95), xycoords=("data", "axes fraction"), xytext=(6, 0), va="top",
            textcoords="offset points")  # fmt: skip
ax.set(xlabel="iteration (one pass over X each)", ylabel="relative error", ylim=(0, None))
ax.legend(frameon=False)
plt.show()
folder.cleanup()

# %%
# Summary
# -------
# A Zarr array (or an HDF5 dataset, or a memory map) is decomposed without loading it as a whole: X takes 100 MB
# unpacked, and each thread reads 32 MB of rows at a time. A run that ended at 10 iterations with an error of 0.374
# resumes with the same call and ends at 0.278 after 25. An iteration reads all of X, so store it in chunks of whole
# rows on a fast disk.
