"""Term counts of texts, one text a row, as SciPy CSR arrays."""

import gzip
import os
from typing import Any

import numpy as np
from scipy import sparse

from relunmd.datasets import store
from relunmd.datasets.image_sets import read_mat
from relunmd.errors import DatasetError

__all__ = ["classic", "kos", "newsgroups"]

Folder = str | os.PathLike[str] | None
Counts = Any
"""A scipy.sparse.csr_array."""

KOS = store.RemoteFile(
    "kos/docword.kos.txt.gz",
    source="the UCI machine learning repository, data set 164, bag of words",
    sha256="6439c39f2fccb4876563e4b4c9628974d8ccbeada43d661292a5024911389e30",
    url="https://archive.ics.uci.edu/ml/machine-learning-databases/bag-of-words/docword.kos.txt.gz",
)
CLASSIC = store.RemoteFile(
    "classic/classic.mat",
    source="the data sets of the NMF book's code, gitlab.com/ngillis/nmfbook",
    sha256="29c2dae72c675be02e84dff4829809cdbc7af7e0b6e099155a5b578b28d1e2f2",
    url="https://gitlab.com/ngillis/nmfbook/-/raw/master/data%20sets/classic.mat",
)
NEWSGROUPS = store.RemoteFile(
    "20newsgroups/20news_counts_mindf5.npz",
    source="counting the words that are in at least five posts of the 18 846 by-date ones (scikit-learn's "
    "fetch_20newsgroups and CountVectorizer), saved with scipy.sparse.save_npz",
    sha256="98dc2c51180e827e5f46dd2105b419f19191a88f9a6cd17842facb2c8dd126b6",
)


def kos(data: Folder = None, download: bool = True) -> Counts:
    """KOS blog entries: 3430 texts, 6906 words, 1.5 % non-zeros; int32."""
    path = store.get(KOS, data, download)
    try:
        with gzip.open(path, "rt", encoding="ascii") as lines:
            m, n, stored = (int(lines.readline()) for _ in range(3))
            entries = np.loadtxt(lines, dtype=np.int32, ndmin=2)
        if entries.shape != (stored, 3):
            raise ValueError(f"{stored} entries were announced and {len(entries)} are there")
        counts = sparse.csr_array((entries[:, 2], (entries[:, 0] - 1, entries[:, 1] - 1)), shape=(m, n))
    except Exception as reason:  # A damaged file makes the decompression raise all sorts of things.
        raise DatasetError(
            f"{path} must be a gzipped bag of words as UCI has it. Reading it gave: {reason}"
        ) from reason
    return counts


def classic(data: Folder = None, download: bool = True) -> Counts:
    """Abstracts of four collections: 7094 texts, 41 681 words, 0.08 % non-zeros; float64."""
    return sparse.csr_array(read_mat(store.get(CLASSIC, data, download), "X"))


def newsgroups(data: Folder = None) -> Counts:
    """20 Newsgroups, words that are in at least five posts: 18 846 posts, 30 295 words, 0.30 % non-zeros; int32."""
    path = store.get(NEWSGROUPS, data)
    try:
        return sparse.csr_array(sparse.load_npz(path))
    except Exception as reason:  # A damaged archive makes the reader raise all sorts of things.
        raise DatasetError(f"{path} must be written by scipy.sparse.save_npz. Reading it gave: {reason}") from reason
