"""Data sets: find or download them, read them, take subsets, and hold them in memory."""
