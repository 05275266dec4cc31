"""Greedy maximisers: a plain specification, and fast versions that are tested against it."""
