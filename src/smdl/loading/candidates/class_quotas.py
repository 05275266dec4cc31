"""Class quotas: how often each class is in a batch."""

from collections.abc import Iterator

import numpy as np


def deal_equally(classes: np.ndarray, sizes: list[int], rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield batches of the given sizes, with every class equally often, as far as it has enough samples.

    Each class has a shuffled deck of its own, so its samples are drawn equally often, give or take one, and no
    batch holds a sample twice.
    """
    _, codes, counts = np.unique(classes, return_inverse=True, return_counts=True)
    members = [np.flatnonzero(codes == code) for code in range(len(counts))]
    decks = [np.zeros(0, np.int64) for _ in counts]
    for size in sizes:
        rows = []
        for code, count in enumerate(rounded(_shares(counts, size), rng)):
            deck = decks[code]
            if len(deck) < count:
                fresh = rng.permutation(members[code])
                held = np.isin(fresh, deck)
                deck = np.concatenate([deck, fresh[~held], fresh[held]])
            rows.append(deck[:count])
            decks[code] = deck[count:]
        yield rng.permutation(np.concatenate(rows))


def _shares(counts: np.ndarray, size: int) -> np.ndarray:
    """Return how many samples of each class a batch holds, in fractions of a sample: as many of each class, but all of
    a class that has fewer."""
    exact, free = np.zeros(len(counts)), np.ones(len(counts), bool)
    while free.any():
        exact[free] = (size - exact[~free].sum()) / free.sum()
        small = free & (exact > counts)
        if not small.any():
            break
        exact[small], free = counts[small], free & ~small
    return exact


def rounded(exact: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Round to whole numbers with the same sum, a whole number: each up or down, at random, and right on average. They
    are rounded in random order, so that any of them may go up together."""
    order = rng.permutation(len(exact)) if (exact % 1).any() else np.arange(len(exact))
    total = round(float(exact.sum()))
    ends = np.concatenate([[0.0], np.cumsum(exact[order])])
    edges = np.floor(ends + rng.random() * (1 - 1e-6) + 1e-7).astype(np.int64)
    edges[-1] = edges[0] + total
    found = np.empty(len(exact), np.int64)
    found[order] = np.diff(edges)
    return found
