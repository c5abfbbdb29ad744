"""A method of one's own in comparisons.

    python examples/own_algorithm.py compare X.npy --ranks 8,16 -o compared

It is 3B-NMD with the momentum on the factors, in plain NumPy: it keeps no m×n matrix from one
iteration to the next but needs the library for nothing. Anything that yields W and H can take part.
"""

import numpy as np

from relunmd import comparison
from relunmd.cli import main


@comparison.register("my 3B", momentum=0.7)
def my_three_block(X, W, H, momentum):
    zero = X == 0
    W_before, H_before = W, H
    while True:
        W_ahead, H_ahead = W + momentum * (W - W_before), H + momentum * (H - H_before)
        Z = np.where(zero, np.minimum(0, W_ahead @ H_ahead), X)
        W_before, H_before = W, H
        W = np.linalg.lstsq(H_ahead.T, Z.T, rcond=None)[0].T
        H = np.linalg.lstsq(W, Z, rcond=None)[0]
        yield W, H


if __name__ == "__main__":
    main()
