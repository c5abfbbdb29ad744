"""The numbers that the paper reports: Seraghiti, Awari, Vandaele, Porcelli and Gillis, "Accelerated algorithms for
nonlinear matrix decomposition with the ReLU function" (MLSP 2023), arXiv:2305.08687. Figure 2's are read off the plot.
"""

TABLE1: dict[tuple[int, int], dict[str, float]] = {
    (500, 8): {"random": 0.95, "tsvd": 0.40, "nuclear": 0.36},
    (1000, 8): {"random": 0.95, "tsvd": 0.41, "nuclear": 0.38},
    (1500, 8): {"random": 0.95, "tsvd": 0.41, "nuclear": 0.38},
    (2000, 8): {"random": 0.95, "tsvd": 0.41, "nuclear": 0.38},
    (500, 16): {"random": 0.95, "tsvd": 0.36, "nuclear": 0.32},
    (1000, 16): {"random": 0.95, "tsvd": 0.37, "nuclear": 0.33},
    (1500, 16): {"random": 0.95, "tsvd": 0.38, "nuclear": 0.33},
    (2000, 16): {"random": 0.95, "tsvd": 0.38, "nuclear": 0.33},
}
"""Initial errors by (size, rank)."""

Counts = dict[int, dict[str, tuple[float, int]]]

TABLE2: Counts = {
    500: {"Naive": (1.84, 110), "A-Naive": (0.78, 44), "A-NMD": (0.57, 32)},
    1000: {"Naive": (7.21, 87), "A-Naive": (2.85, 33), "A-NMD": (2.28, 27)},
    1500: {"Naive": (11.4, 80), "A-Naive": (4.40, 29), "A-NMD": (3.71, 25)},
    2000: {"Naive": (21.2, 78), "A-Naive": (8.19, 28), "A-NMD": (6.80, 24)},
}
"""(seconds, iterations) by size, rank 32."""

TABLE3: Counts = {
    500: {"A-NMD": (0.64, 33), "3B-NMD": (0.08, 23), "EM": (2.2, 101), "A-EM": (1.0, 43)},
    1000: {"A-NMD": (2.4, 27), "3B-NMD": (0.24, 24), "EM": (8.1, 78), "A-EM": (3.9, 36)},
    1500: {"A-NMD": (3.6, 24), "3B-NMD": (0.46, 24), "EM": (12.8, 70), "A-EM": (6.5, 35)},
    2000: {"A-NMD": (6.7, 25), "3B-NMD": (0.81, 24), "EM": (22.1, 66), "A-EM": (11.6, 34)},
}
"""(seconds, iterations) by size, rank 32."""

TABLE4: Counts = {
    8: {"A-NMD": (2.0, 33), "3B-NMD": (0.22, 22), "EM": (10.1, 97), "A-EM": (4.4, 42)},
    16: {"A-NMD": (2.0, 24), "3B-NMD": (0.20, 24), "EM": (7.7, 77), "A-EM": (3.5, 36)},
    32: {"A-NMD": (2.2, 23), "3B-NMD": (0.22, 24), "EM": (7.4, 72), "A-EM": (3.6, 33)},
    64: {"A-NMD": (2.5, 23), "3B-NMD": (0.25, 25), "EM": (8.4, 66), "A-EM": (3.7, 32)},
}
"""(seconds, iterations) by rank, size 1000."""

FIGURE2: dict[int, dict[str, float]] = {
    8: {"TSVD": 0.58, "A-NMD": 0.545, "3B-NMD": 0.545},
    32: {"TSVD": 0.38, "A-NMD": 0.257, "3B-NMD": 0.245},
    64: {"TSVD": 0.27, "A-NMD": 0.168, "3B-NMD": 0.155},
    128: {"TSVD": 0.18, "A-NMD": 0.115, "3B-NMD": 0.095},
    256: {"TSVD": 0.10, "A-NMD": 0.055, "3B-NMD": 0.037},
}
"""Errors after 20 s on 50 000 images, by rank."""

ZEROS_OF_BASIS = 0.85
"""Share of zeros in the paper's NMF basis of CBCL."""
