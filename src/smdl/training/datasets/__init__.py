"""Data sets: found or downloaded, read, arranged, and held in memory."""
