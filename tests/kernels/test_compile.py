"""Compilation: one signature a float type, and no cache needed."""

import logging

import numba
import numpy as np
from scipy import sparse

from relunmd import kernels
from relunmd.kernels import _compile


def test_every_kernel_has_exactly_one_signature_a_float_type():
    """So nothing is compiled while a clock runs."""
    import relunmd

    random = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        X = np.maximum(0, random.standard_normal((40, 30))).astype(dtype)
        for algorithm in relunmd.algorithms():
            for init in relunmd.inits():
                relunmd.decompose(X, 3, algorithm, init, max_iter=2)
                relunmd.decompose(sparse.csr_array(X), 3, algorithm, init, max_iter=2)
    for compiled, letters in _compile._REGISTERED:
        assert len(compiled.signatures) == (4 if set(letters) & set("xi") else 2), (compiled, compiled.signatures)
        assert all(len(signature) == len(letters) for signature in compiled.signatures)


def test_where_nothing_can_be_cached_kernels_compile_all_the_same(monkeypatch, caplog):
    original = numba.njit

    def njit(*given, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return original(*given, **options)

    monkeypatch.setattr(numba, "njit", njit)
    monkeypatch.setattr(_compile, "_REGISTERED", [])
    with caplog.at_level(logging.INFO, "relunmd"):
        twice = _compile.kernel("s")(lambda x: 2 * x)
    assert twice(21.0) == 42.0
    assert "no locator available" in caplog.text


def test_warm_up_twice_is_free():
    kernels.warm_up(np.dtype(np.float64))
    before = [len(compiled.signatures) for compiled, _ in _compile._REGISTERED]
    kernels.warm_up(np.dtype(np.float64))
    assert [len(compiled.signatures) for compiled, _ in _compile._REGISTERED] == before
