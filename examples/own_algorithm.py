"""eBCD (Seraghiti et al. 2025) as an algorithm of your own: one pass over X an iteration, any kind of X."""

from dataclasses import dataclass

import numpy as np

from relunmd import Algorithm, State, datasets, decompose, look, setting


@dataclass(frozen=True)
class EBCD(Algorithm):
    """Extrapolated block coordinate descent: Z_α = Θ + αG; W ← orthonormal basis of Z_αHᵀ; H ← WᵀZ_α."""

    keeps = {"P": "mr", "GW": "nr float64", "GP": "nr float64", "WW": "rr float64", "WP": "rr float64",
             "PP": "rr float64", "objective": float, "alpha": float, "mu": float}  # fmt: skip
    reports = ("objective", "alpha")
    mu: float = setting(0.3, gt=0)
    alpha_max: float = setting(4.0, gt=1)
    delta: float = setting(0.8, gt=0, lt=1)

    def start(self, problem, W, H):
        return State(H=H, alpha=1.0, mu=self.mu, **vars(look(problem, W, H)))

    def step(self, problem, s):
        a, mu = s.alpha, s.mu
        values, Q = np.linalg.eigh(s.WW + a * (s.WP + s.WP.T) + a * a * s.PP)  # Z_αHᵀ spans what W + αP spans
        C = Q / np.sqrt(np.maximum(values, 1e-12 * values[-1]))  # (W + αP)C is orthonormal
        H = C.T @ ((s.WW + a * s.WP.T) @ s.H + a * (s.GW + a * s.GP).T)
        seen = look(problem, [(s.W, C), (s.P, a * C)], H)
        if seen.objective >= s.objective:
            return s.replace(alpha=1.0)
        if seen.objective > self.delta * s.objective:
            mu = max(mu, (a - 1) / 4)
            a = a + mu if a + mu < self.alpha_max else 1.0
        return State(H=H, alpha=a, mu=mu, **vars(seen))


if __name__ == "__main__":
    print(decompose(datasets.digits(), 16, EBCD(), random_state=0))
