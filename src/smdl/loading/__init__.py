"""Loaders, and the methods that choose their batches."""
