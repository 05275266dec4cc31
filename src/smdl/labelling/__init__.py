"""Labelling: which rows a person should label next, and what the labels given so far are worth."""
