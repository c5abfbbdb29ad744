"""What the figures in RESULTS.md are measured with."""
