"""Rows in files, and what is chosen from them."""
