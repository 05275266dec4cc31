"""Near-copies by cosine similarity: smdl beside semhash and sentence-transformers, on the same vectors.

    python benchmarks/dedup.py --rows 20000 100000

Each method runs in a process of its own with one thread. The peers are measured if they are installed: semhash by its
`from_embeddings` and `self_deduplicate`, sentence-transformers by its `community_detection`. The vectors are made here:
random directions around centres, 30 % of the rows copies of others plus noise of cosine 0.96 to 1. A copy is found if a
method drops one of the two rows. CPU seconds are those of the process, without importing and making the vectors.

    python benchmarks/dedup.py --rows 1000000 --methods smdl --mapped

writes the vectors to a .npy file of float16 first, and measures a process that maps it. "GB more" is then the memory of
the process without the map (the highest RssAnon of Linux, looked at every 20 ms) above that before the search.

    python benchmarks/dedup.py --rows 10000000 --width 64 --methods smdl --mapped --check 1000

compares 1,000 random rows with all rows besides, after the measurement: of how many of their pairs both rows are kept,
and how many of them are dropped without a kept row that is like them.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

SIMILARITY, COPIES = 0.95, 0.3


def vectors(rows: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return unit vectors (n, D), the rows that are copies, and what they are copies of."""
    rng = np.random.default_rng(seed)
    originals = int(rows * (1 - COPIES))
    centres = rng.normal(size=(200, width)).astype(np.float32)
    values = np.empty((rows, width), np.float32)
    values[:originals] = 0.6 * centres[rng.integers(200, size=originals)]
    for start in range(0, originals, 100_000):
        part = values[start : min(originals, start + 100_000)]
        part += rng.standard_normal(part.shape, np.float32)
    values[:originals] /= np.linalg.norm(values[:originals], axis=1, keepdims=True)
    sources = rng.integers(originals, size=rows - originals)
    for start in range(originals, rows, 100_000):
        stop = min(rows, start + 100_000)
        noise = rng.standard_normal((stop - start, width), np.float32)
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


class Memory:
    """The memory of this process without files that are mapped, in GB: what it is at first, and the most of it."""

    def __init__(self) -> None:
        self.before = self.most = _anonymous()
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            self.most = max(self.most, _anonymous())

    def end(self) -> float:
        self._ended.set()
        return self.most - self.before


def _anonymous() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1e6
    raise OSError("this system does not tell RssAnon")


def measure(method: str, rows: int, width: int, checked: int, folder: str) -> None:
    """Print one line of the table. `folder` has the vectors in files, or is empty."""
    import torch

    torch.set_num_threads(1)
    if folder:
        values, copies, sources = (np.load(f"{folder}/{name}.npy", mmap_mode="r") for name in NAMES)
    else:
        values, copies, sources = vectors(rows, width)
    if method == "smdl":
        by_smdl(values[:2000])  # compile
    memory = Memory() if folder else None
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    kept, note = METHODS[method](values)
    after, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - started
    more = memory.end() if memory else (after.ru_maxrss - before.ru_maxrss) / 1e6
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    is_kept = np.zeros(rows, bool)
    is_kept[kept] = True
    missed = int((is_kept[copies] & is_kept[sources]).sum())
    note = f"{note}; {check(values, is_kept, checked)}" if checked else note
    print(
        f"| {method} | {rows:,} | {cpu:.1f} | {wall:.1f} | {len(kept):,} | {missed:,} of {len(copies):,} |"
        f" {more:.2f} | {note} |",
        flush=True,
    )


NAMES = ("values", "copies", "sources")


def check(values: np.ndarray, is_kept: np.ndarray, count: int, seed: int = 1) -> str:
    """Compare random rows with all rows. Say which pairs are kept, and which rows are dropped for nothing."""
    import torch
    from torch.nn.functional import normalize

    def unit(rows: np.ndarray) -> torch.Tensor:
        return normalize(torch.from_numpy(rows.astype(np.float32)), dim=1)

    drawn = np.sort(np.random.default_rng(seed).choice(len(values), count, replace=False))
    some, pairs, both, has_kept = unit(values[drawn]), 0, 0, np.zeros(count, bool)
    for start in range(0, len(values), 1 << 14):
        similar = some @ unit(values[start : start + (1 << 14)]).T >= SIMILARITY
        one, two = (places.numpy() for places in similar.nonzero(as_tuple=True))
        two += start
        one, two = one[drawn[one] != two], two[drawn[one] != two]
        pairs += len(one)
        both += int((is_kept[drawn[one]] & is_kept[two]).sum())
        has_kept[one[is_kept[two]]] = True
    dropped = ~is_kept[drawn]
    return (
        f"{count:,} random rows have {pairs:,} pairs, both rows kept: {both:,};"
        f" dropped: {dropped.sum():,}, without a kept row like them: {(dropped & ~has_kept).sum():,}"
    )


def write(rows: int, width: int, folder: str) -> None:
    """Write the vectors as files."""
    values, copies, sources = vectors(rows, width)
    for name, found in zip(NAMES, (values.astype(np.float16), copies, sources), strict=True):
        np.save(f"{folder}/{name}.npy", found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000])
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--mapped", action="store_true", help="from a .npy file of float16")
    parser.add_argument("--check", type=int, default=0, metavar="ROWS", help="compare random rows with all rows")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        method, rows, width, checked, folder = options.one
        if method == "write":
            write(int(rows), int(width), folder)
        else:
            measure(method, int(rows), int(width), int(checked), folder)
        return
    print("| method | rows | CPU s | wall s | kept | copies missed | GB more | |")
    print("| --- " * 8 + "|")
    for rows in options.rows:
        with tempfile.TemporaryDirectory() as folder:
            if options.mapped:
                run("write", rows, options.width, 0, folder)
            for method in options.methods:
                run(method, rows, options.width, options.check, folder if options.mapped else "")


def run(*arguments: object) -> None:
    """Run one step in a process of its own."""
    ended = subprocess.run([sys.executable, __file__, "--one", *map(str, arguments)], stderr=subprocess.PIPE, text=True)
    if ended.returncode:
        print(f"| {arguments[0]} | {arguments[1]:,} | {ended.stderr.strip().splitlines()[-1][:100]} |", flush=True)


if __name__ == "__main__":
    main()
