"""The paper's algorithms in plain NumPy with LAPACK's SVDs: what ours are held against, step by step.

3B-NMD's is the benchmark's reference, benchmarks/reference.py.
"""

import numpy as np
from scipy import linalg
from scipy.special import erfcx, log_ndtr

from tests.conftest import projection


def tsvd(Z, rank):
    U, sigma, Vt = linalg.svd(Z, full_matrices=False)
    return (U[:, :rank] * sigma[:rank]) @ Vt[:rank]


def error(X, Theta):
    return np.linalg.norm(X - np.maximum(0, Theta)) / np.linalg.norm(X)


def naive(X, rank, Theta, iterations, alpha=0.0):
    errors = [error(X, Theta)]
    Z = Z_before = projection(X, Theta)
    for _ in range(iterations):
        Z, Z_before = projection(X, Theta) + alpha * (Z - Z_before), Z
        Theta = tsvd(Z, rank)
        errors.append(error(X, Theta))
    return errors


def em(X, rank, Theta, iterations, alpha=0.0):
    """Errors, σ² and log-likelihoods, the start's first."""
    sigma2, Z, Z_before = X.var(), X, X
    errors, sigmas, likelihoods = [], [], []
    for _ in range(iterations + 1):
        sigma = np.sqrt(sigma2)
        gamma = Theta / sigma
        normal = -((X - Theta) ** 2) / (2 * sigma2) - np.log(2 * np.pi * sigma2) / 2
        errors.append(error(X, Theta))
        sigmas.append(sigma2)
        likelihoods.append(np.where(X > 0, normal, log_ndtr(-gamma)).sum())
        rho = np.sqrt(2 / np.pi) / erfcx(gamma / np.sqrt(2))
        variance = np.where(X > 0, 0, np.maximum(0, sigma2 * (1 - (rho - gamma) * rho)))
        Z, Z_before = np.where(X > 0, X, Theta - sigma * rho) + alpha * (Z - Z_before), Z
        Theta = tsvd(Z, rank)
        sigma2 = (variance.sum() + np.sum((Z - Theta) ** 2)) / X.size
    return errors, sigmas, likelihoods


def a_nmd(X, rank, Theta, iterations, beta0=0.7, gamma=1.1, gamma_bar=1.05, eta=2.5):
    """Algorithm 1: errors of the rank-r matrices of the accepted steps, errors of the accepted Θ, and β."""
    Z = projection(X, Theta)
    beta, beta_before, bound = beta0, beta0, 1.0
    errors, accepted, betas = [error(X, Theta)], [error(X, Theta)], [beta0]
    for _ in range(iterations):
        Z_new = projection(X, Theta)
        Z_new = Z_new + beta * (Z_new - Z)
        plain = tsvd(Z_new, rank)
        Theta_new = plain + beta * (plain - Theta)
        if error(X, Theta_new) < accepted[-1]:
            Z, Theta = Z_new, Theta_new
            errors.append(error(X, plain))
            accepted.append(error(X, Theta_new))
            beta, beta_before, bound = min(bound, gamma * beta), beta, min(1, gamma_bar * bound)
        else:
            errors.append(errors[-1])
            accepted.append(accepted[-1])
            beta, beta_before, bound = beta / eta, beta, beta_before
        betas.append(beta)
    return errors, accepted, betas
