"""Experiments: many runs, compared."""
