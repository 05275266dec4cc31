"""Compiled greedy loops: exact (naive or lazy) and stochastic.

A gain never rises as the batch grows, so an earlier gain is an upper bound of the current one. The lazy loops skip a
candidate whose bound is below the best gain. Ties go to the lowest index, except in a first step in which all
candidates tie: there the pick is random.
"""

import math

import numpy as np

from smdl.greedy.gains import add_pick, empty_state, gain_of, single_gains
from smdl.jit import compiled
from smdl.randomness import below_compiled, derive_compiled, sample_compiled

#: Fewest candidates per block. A block whose greatest bound is below the best gain is skipped.
BLOCK = 16


@compiled
def _check_gain(gain):
    """Raise an error for NaN: a step in which no gain compares would have no winner."""
    if gain != gain:
        raise FloatingPointError("a gain is not a number")


@compiled
def start(term, state, picked, initial):
    """Start the batch with the samples `initial`."""
    for k in range(len(initial)):
        picked[k] = initial[k]
        add_pick(term, state, initial[k])


@compiled
def exact(term, modular, members, low, penalty, lazy, key, initial, picked, gains):
    """Maximise greedily over `members` (ascending). Each step computes the gain of every candidate, or with `lazy`
    only of those whose bound could win. Stop after `low` picks once the best gain is below `penalty`. Write the samples
    `initial`, which the batch starts with, and the picks to `picked`, the gains of the picks to `gains`. Return how
    many were picked."""
    n, given, size, state = len(members), len(initial), len(gains), empty_state(term)
    start(term, state, picked, initial)
    bounds, seen = np.empty(n), np.full(n, given, np.int32)
    single_gains(term, state, modular, members, picked, given, bounds)
    for place in range(n):
        _check_gain(bounds[place])
    block = max(BLOCK, int(math.sqrt(n)))
    blocks = (n + block - 1) // block
    tops = np.empty(blocks)
    for k in range(blocks):
        tops[k] = bounds[k * block : (k + 1) * block].max()
    for count in range(given, given + size):
        best, winner = -np.inf, n
        if count == 0 and bounds.min() == bounds.max():
            winner = below_compiled(derive_compiled(key, 0), 0, n)
            best = bounds[winner]
        else:
            first = np.argmax(tops)
            if lazy:  # the greatest bound first: its gain rules out most of the others
                winner = first * block + np.argmax(bounds[first * block : (first + 1) * block])
                if seen[winner] != count:
                    a = members[winner]
                    best, seen[winner] = gain_of(
                        term, state, modular[a], a, picked, seen[winner], count, bounds[winner], -np.inf
                    )
                    _check_gain(best)
                    bounds[winner] = best
                best = bounds[winner]
            for step in range(-1, blocks):
                k = first if step < 0 else step
                if step == first or (lazy and tops[k] < best):
                    continue
                top = -np.inf
                for place in range(k * block, min((k + 1) * block, n)):
                    bound = bounds[place]
                    if bound == -np.inf:
                        continue
                    if not lazy or bound > best or (bound == best and place < winner):
                        if seen[place] != count:
                            a = members[place]
                            goal = best if lazy else -np.inf
                            bound, seen[place] = gain_of(
                                term, state, modular[a], a, picked, seen[place], count, bound, goal
                            )
                            _check_gain(bound)
                            bounds[place] = bound
                        if bound > best or (bound == best and place < winner):
                            best, winner = bound, place
                    top = max(top, bound)
                tops[k] = top
        if count - given >= low and best < penalty:
            return count - given
        picked[count], gains[count - given] = members[winner], best
        bounds[winner] = -np.inf
        add_pick(term, state, members[winner])
    return size


@compiled
def stochastic(term, modular, members, low, penalty, sample, key, initial, picked, gains):
    """Maximise by lazier-than-lazy greedy: each step considers a new random sample of the remaining members."""
    n, given, size, state = len(members), len(initial), len(gains), empty_state(term)
    start(term, state, picked, initial)
    bounds, seen, order = np.full(n, np.inf), np.full(n, -1, np.int32), np.arange(n).astype(np.int32)
    for count in range(given, given + size):
        step, remaining = derive_compiled(key, count - given), n - (count - given)
        drawn = min(sample, remaining)
        if drawn < remaining:
            sample_compiled(order, remaining, drawn, step)
        best, lowest, winner, where = -np.inf, np.inf, n, 0
        for t in range(drawn):
            place = order[t]
            bound = bounds[place]
            if bound < best or (bound == best and place > winner):
                lowest = min(lowest, bound)
                continue
            if seen[place] != count:
                a = members[place]
                bound, seen[place] = gain_of(term, state, modular[a], a, picked, seen[place], count, bound, best)
                _check_gain(bound)
                bounds[place] = bound
            lowest = min(lowest, bound)
            if bound > best or (bound == best and place < winner):
                best, winner, where = bound, place, t
        if count == 0 and lowest == best:
            where = below_compiled(step, drawn, drawn)
            winner = order[where]
        if count - given >= low and best < penalty:
            return count - given
        picked[count], gains[count - given] = members[winner], best
        order[where], order[remaining - 1] = order[remaining - 1], order[where]
        add_pick(term, state, members[winner])
    return size
