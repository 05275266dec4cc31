"""Strategies: how a batch is chosen, one file each."""
