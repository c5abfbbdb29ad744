"""The algorithms that have a name: a new one is a file in `relunmd/algorithm` and one line here."""

ALGORITHMS = (
    "naive.Naive",
    "naive.ANaive",
    "em.EM",
    "em.AEM",
    "aggressive.ANMD",
    "three_block.ThreeBlock",
    "three_block_factored.ThreeBlockFactored",
    "quasi_newton.QuasiNewton",
    "tsvd.TSVD",
)
"""Module and class, in the order in which they are listed."""
