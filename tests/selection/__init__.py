"""Tests of relunmd.selection."""
