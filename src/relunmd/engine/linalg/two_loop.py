"""The two-loop recursion of limited-memory BFGS on inner products alone.

The vectors of the recursion (steps s, changes y of the gradient, the gradient g) are long, and lie in pieces wherever
the rows of X are. All that the recursion asks of them is a few dozen inner products, plain and in the metric M that
stands for the initial inverse Hessian; and its result is a combination of them, given by its coefficients.
"""

from dataclasses import dataclass

import numpy as np

from relunmd.engine.matrix import Array

_FIRST = 0.5
"""The factor of M while nothing is known: half of the least-squares step in W and half of that in H."""


@dataclass(frozen=True)
class Products:
    """Inner products of k pairs, oldest first, and of the gradient: s·g, s·y, y·My, y·Mg and g·Mg."""

    s_g: Array
    s_y: Array
    """k×k, row i for the step s_i; only the part with y_j no older than s_i is used."""
    y_My: Array
    y_Mg: Array
    g_Mg: float

    def part(self, kept: slice) -> "Products":
        """The same with some of the pairs only."""
        s_y, y_My = self.s_y[kept, kept].copy(), self.y_My[kept, kept].copy()
        return Products(self.s_g[kept], s_y, y_My, self.y_Mg[kept], self.g_Mg)


@dataclass(frozen=True)
class Direction:
    """d = Σ steps_i·s_i + M(Σ changes_i·y_i + gradient·g), and its slope g·d."""

    steps: Array
    changes: Array
    gradient: float
    slope: float


def two_loop(products: Products) -> Direction:
    """−(approximate inverse Hessian)·g, with γM as the initial one, γ = s·y / y·My of the newest pair.

    Without pairs it is −½Mg:

    >>> nothing = np.zeros((0, 0))
    >>> two_loop(Products(nothing[0:0].ravel(), nothing, nothing, nothing.ravel(), 4.0)).slope
    -2.0
    """
    k = len(products.s_g)
    s_y, curvature = products.s_y, np.diag(products.s_y)
    gamma = float(curvature[-1] / products.y_My[-1, -1]) if k else _FIRST
    alpha, s_q = np.zeros(k), products.s_g.astype(np.float64)
    for i in range(k - 1, -1, -1):
        alpha[i] = s_q[i] / curvature[i]
        s_q -= alpha[i] * s_y[:, i]
    y_p = gamma * (products.y_Mg - products.y_My @ alpha)
    delta = np.zeros(k)
    for i in range(k):
        delta[i] = alpha[i] - y_p[i] / curvature[i]
        y_p += delta[i] * s_y[i]
    slope = -gamma * (products.g_Mg - float(products.y_Mg @ alpha)) - float(delta @ products.s_g)
    return Direction(-delta, gamma * alpha, -gamma, slope)
