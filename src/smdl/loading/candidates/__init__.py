"""Candidates: what each batch is chosen from, and when it is scored. One file per kind."""
