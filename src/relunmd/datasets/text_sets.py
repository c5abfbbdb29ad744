"""Word counts of texts, one text per row, as SciPy CSR arrays."""

import gzip
from typing import Any

import numpy as np
from scipy import sparse

from relunmd.datasets.image_sets import read_mat
from relunmd.datasets.store import Folder, RemoteFile, get, reading

KOS = RemoteFile(
    "kos/docword.kos.txt.gz",
    source="the UCI machine learning repository, data set 164, bag of words",
    sha256="6439c39f2fccb4876563e4b4c9628974d8ccbeada43d661292a5024911389e30",
    url="https://archive.ics.uci.edu/ml/machine-learning-databases/bag-of-words/docword.kos.txt.gz",
)
CLASSIC = RemoteFile(
    "classic/classic.mat",
    source="the data sets of the NMF book's code, gitlab.com/ngillis/nmfbook",
    sha256="29c2dae72c675be02e84dff4829809cdbc7af7e0b6e099155a5b578b28d1e2f2",
    url="https://gitlab.com/ngillis/nmfbook/-/raw/master/data%20sets/classic.mat",
)
NEWSGROUPS = RemoteFile(
    "20newsgroups/20news_counts_mindf5.npz",
    source="counting the words that are in at least five posts of the 18 846 by-date ones (scikit-learn's "
    "fetch_20newsgroups and CountVectorizer), saved with scipy.sparse.save_npz",
    sha256="98dc2c51180e827e5f46dd2105b419f19191a88f9a6cd17842facb2c8dd126b6",
)


def kos(data: Folder = None, download: bool = True) -> Any:
    """Load the KOS blog entries: 3430 texts, 6906 words, 1.5 % nonzeros.

    Parameters
    ----------
    data : str or path-like, default=None
        A folder to search first.
    download : bool, default=True
        Whether to download the file if no folder has it.

    Returns
    -------
    csr_array of shape (3430, 6906) and dtype int32
        Counts, one text per row.

    Examples
    --------
    >>> from relunmd import datasets
    >>> datasets.kos().shape  # doctest: +SKIP
    (3430, 6906)
    """
    path = get(KOS, data, download)
    with reading(path, "a gzipped bag of words in UCI's format"):
        with gzip.open(path, "rt", encoding="ascii") as lines:
            m, n, stored = (int(lines.readline()) for _ in range(3))
            entries = np.loadtxt(lines, dtype=np.int32, ndmin=2)
        if entries.shape != (stored, 3):
            raise ValueError(f"expected {stored} entries, found {len(entries)}")
        return sparse.csr_array((entries[:, 2], (entries[:, 0] - 1, entries[:, 1] - 1)), shape=(m, n))


def classic(data: Folder = None, download: bool = True) -> Any:
    """Load the abstracts of four collections: 7094 texts, 41 681 words, 0.08 % nonzeros.

    Parameters
    ----------
    data : str or path-like, default=None
        A folder to search first.
    download : bool, default=True
        Whether to download the file if no folder has it.

    Returns
    -------
    csr_array of shape (7094, 41681) and dtype float64
        Counts, one text per row.

    Examples
    --------
    >>> from relunmd import datasets
    >>> datasets.classic().shape  # doctest: +SKIP
    (7094, 41681)
    """
    return sparse.csr_array(read_mat(get(CLASSIC, data, download), "X"))


def newsgroups(data: Folder = None) -> Any:
    """Load 20 Newsgroups with the words that are in at least five posts: 0.30 % nonzeros.

    Parameters
    ----------
    data : str or path-like, default=None
        A folder to search first. The file cannot be downloaded.

    Returns
    -------
    csr_array of shape (18846, 30295) and dtype int32
        Counts, one post per row.

    Examples
    --------
    >>> from relunmd import datasets
    >>> datasets.newsgroups(data="folder").shape  # doctest: +SKIP
    (18846, 30295)
    """
    path = get(NEWSGROUPS, data)
    with reading(path, "a file of scipy.sparse.save_npz"):
        return sparse.csr_array(sparse.load_npz(path))
