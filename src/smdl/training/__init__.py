"""Training: one run from a config, on disk as it goes."""
