"""The one loop that runs every algorithm: iterations, stopping criteria, callbacks, checkpoints, recovery."""
