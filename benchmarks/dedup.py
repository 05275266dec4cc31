"""Near-copies by cosine similarity: smdl beside semhash and sentence-transformers, on the same vectors.

    python benchmarks/dedup.py --rows 20000 100000

Each method runs in a process of its own with one thread. The peers are measured if they are installed: semhash by its
`from_embeddings` and `self_deduplicate`, sentence-transformers by its `community_detection`. The vectors are made here:
random directions around centres, 30 % of the rows copies of others plus noise of cosine 0.96 to 1. A copy is found if a
method drops one of the two rows. CPU seconds are those of the process, without importing and making the vectors.
"""

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

WIDTH, SIMILARITY, COPIES = 384, 0.95, 0.3


def vectors(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return unit vectors (n, D), the rows that are copies, and what they are copies of."""
    rng = np.random.default_rng(seed)
    originals = int(rows * (1 - COPIES))
    centres = rng.normal(size=(200, WIDTH)).astype(np.float32)
    values = np.empty((rows, WIDTH), np.float32)
    values[:originals] = 0.6 * centres[rng.integers(200, size=originals)]
    for start in range(0, originals, 100_000):
        part = values[start : min(originals, start + 100_000)]
        part += rng.standard_normal(part.shape, np.float32)
    values[:originals] /= np.linalg.norm(values[:originals], axis=1, keepdims=True)
    sources = rng.integers(originals, size=rows - originals)
    for start in range(originals, rows, 100_000):
        stop = min(rows, start + 100_000)
        noise = rng.standard_normal((stop - start, WIDTH), np.float32)
        noise /= np.linalg.norm(noise, axis=1, keepdims=True)
        cosine = rng.uniform(0.96, 1.0, size=(stop - start, 1)).astype(np.float32)
        values[start:stop] = cosine * values[sources[start - originals : stop - originals]]
        values[start:stop] += np.sqrt(1 - cosine**2) * noise
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return values, np.arange(originals, rows), sources


def by_smdl(values: np.ndarray) -> tuple[np.ndarray, str]:
    import smdl

    found = smdl.deduplicate(values, SIMILARITY)
    return found.kept, f"recall measured by itself {found.recall:.4f}"


def by_semhash(values: np.ndarray) -> tuple[np.ndarray, str]:
    from semhash import SemHash

    names = [str(row) for row in range(len(values))]
    index = SemHash.from_embeddings(values, names, model=_NoModel())  # type: ignore[arg-type]
    return np.array([int(name) for name in index.self_deduplicate(SIMILARITY).selected]), ""


def by_sentence_transformers(values: np.ndarray) -> tuple[np.ndarray, str]:
    import torch
    from sentence_transformers.util import community_detection

    groups = community_detection(torch.from_numpy(values), threshold=SIMILARITY, min_community_size=2)
    dropped = {row for group in groups for row in group[1:]}
    return np.array([row for row in range(len(values)) if row not in dropped]), ""


class _NoModel:
    """semhash asks for an encoder, and needs none for embeddings."""

    def encode(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("no text is encoded")


METHODS = {"smdl": by_smdl, "semhash": by_semhash, "sentence-transformers": by_sentence_transformers}


def measure(method: str, rows: int) -> None:
    """Print one line of the table."""
    import torch

    torch.set_num_threads(1)
    values, copies, sources = vectors(rows)
    if method == "smdl":
        by_smdl(values[:2000])  # compile
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    kept, note = METHODS[method](values)
    after, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - started
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    is_kept = np.zeros(rows, bool)
    is_kept[kept] = True
    missed = int((is_kept[copies] & is_kept[sources]).sum())
    more = (after.ru_maxrss - before.ru_maxrss) / 1e6
    print(
        f"| {method} | {rows:,} | {cpu:.1f} | {wall:.1f} | {len(kept):,} | {missed:,} of {len(copies):,} |"
        f" {more:.2f} | {note} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(options.one[0], int(options.one[1]))
        return
    print("| method | rows | CPU s | wall s | kept | copies missed | GB more | |")
    print("| --- " * 8 + "|")
    for rows in options.rows:
        for method in options.methods:
            ended = subprocess.run(
                [sys.executable, __file__, "--one", method, str(rows)], stderr=subprocess.PIPE, text=True
            )
            if ended.returncode:
                print(f"| {method} | {rows:,} | {ended.stderr.strip().splitlines()[-1][:100]} |", flush=True)


if __name__ == "__main__":
    main()
