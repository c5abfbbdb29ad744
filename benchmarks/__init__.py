"""Benchmarks whose figures are in RESULTS.md."""
