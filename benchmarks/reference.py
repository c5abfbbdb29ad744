"""Reference implementations in plain, in-place NumPy.

3B-NMD (the paper's Algorithm 2) and the nuclear-norm initialization by full LAPACK SVDs. They use nothing of relunmd,
so they also serve as oracles in the tests. BLAS uses its default number of threads.
"""

import numpy as np


def three_block(X, W, H, beta=0.7, target_error=0.0, max_iter=1000, on_iteration=None, Z=None):
    """Run Algorithm 2 from Θ⁰ = WH and Z⁰, by default the projection of Θ⁰; Z is overwritten.

    Return W, H and the relative errors, that of the initial factors first.
    """
    positive = X > 0
    norm = np.linalg.norm(X)
    Theta = W @ H
    Z = np.where(positive, X, np.minimum(0, Theta)) if Z is None else Z
    work = np.empty_like(X)
    errors = [np.linalg.norm(X - np.maximum(0, Theta)) / norm]
    while errors[-1] > target_error and len(errors) <= max_iter:
        np.minimum(0, Theta, out=work)
        np.copyto(work, X, where=positive)
        work *= 1 + beta
        Z *= -beta
        Z += work
        W = np.linalg.solve(H @ H.T, H @ Z.T).T
        H = np.linalg.solve(W.T @ W, W.T @ Z)
        np.matmul(W, H, out=work)
        Theta *= -beta / (1 + beta)
        Theta += work
        Theta *= 1 + beta
        np.maximum(0, work, out=work)
        work -= X
        errors.append(np.linalg.norm(work) / norm)
        if on_iteration is not None:
            on_iteration(errors[-1])
    return W, H, errors


def nuclear_start(X, rank, random, steps=3):
    """Return W and H by section 4 of the paper, from random factors."""
    m, n = X.shape
    positive = X > 0

    def feasible(Theta):
        return np.where(positive, X, np.minimum(0, Theta))

    def polar(Theta):
        U, sigma, Vt = np.linalg.svd(Theta, full_matrices=False)
        return U @ Vt, sigma.sum()

    Theta = random.standard_normal((m, rank)) @ random.standard_normal((rank, n))
    relu = np.maximum(0, Theta)
    Theta = feasible(Theta * (np.vdot(X, relu) / np.vdot(relu, relu)))
    Y, norm = polar(Theta)
    step = np.linalg.norm(Theta) / np.linalg.norm(Y)
    for _ in range(steps):
        while True:
            trial = feasible(Theta - step * Y)
            trial_Y, trial_norm = polar(trial)
            if trial_norm < norm:
                break
            step /= 2
        Theta, Y, norm = trial, trial_Y, trial_norm
        step *= 2
    U, sigma, Vt = np.linalg.svd(Theta, full_matrices=False)
    return U[:, :rank], sigma[:rank, None] * Vt[:rank]
