"""Read batches from lists of indices, with any number of worker processes."""

import os
import random
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset, default_collate, get_worker_info

from smdl.common import clock
from smdl.common.messages import choice

WORKER_KILLED = (
    "a worker process of the loader was killed, perhaps because memory ran out:"
    " use fewer workers (num_workers) or smaller batches"
)


#: Samples that are read, and classes of which one is read, to confirm the labels that a dataset holds.
COMPARED = 16


class ReadRequest(NamedTuple):
    """Rows to read, from the dataset, from the scoring dataset, or from both."""

    key: int  # seeds the random numbers that a worker gives to the dataset
    rows: Sequence[int]
    train: bool = True
    score: bool = False


class Reader:
    """A torch DataLoader whose batches are requests. Its workers live as long as the reader, so a plan of a few
    requests starts no processes, and workers read only what was requested. If a worker is killed, the next plan starts
    new ones."""

    def __init__(
        self,
        dataset: Dataset,
        scoring_dataset: Dataset | None,
        collate_fn: Callable[[Any], Any] | None,
        num_workers: int,
        read_ahead: int | None = None,
        **options: Any,
    ) -> None:
        """`read_ahead` is the number of requests of a plan that may be read before the first is asked for."""
        self._plan, self._plans = _Plan(), 0
        if num_workers:
            options.setdefault("persistent_workers", True)
        if num_workers and read_ahead is not None:
            if read_ahead < num_workers:
                warnings.warn(
                    f"num_workers is {num_workers} and only {read_ahead} batches are known in advance:"
                    f" {max(1, read_ahead)} workers are started. A larger lag of smdl.Observed allows more",
                    stacklevel=3,
                )
                num_workers = max(1, read_ahead)
            usual = options.get("prefetch_factor") or 2
            options["prefetch_factor"] = max(1, min(usual, read_ahead // num_workers))
        self.workers = num_workers
        if num_workers:
            clock.count_waiting()
        items = _Items(dataset, scoring_dataset, collate_fn or default_collate)
        self._options = {"dataset": items, "num_workers": num_workers, "collate_fn": _identity, **options}
        self._loader = self._new_loader()

    def _new_loader(self) -> TorchLoader:
        generator = torch.Generator().manual_seed(0)  # without it, each iteration would draw from the global generator
        return TorchLoader(batch_sampler=self._plan, generator=generator, **self._options)  # type: ignore[arg-type]

    def read(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[Any, Any]]:
        """Yield (batch, scoring batch) of each request; None for a part that was not requested. This ends the plan
        before it."""
        self._plans += 1
        # Private names of torch 2.13, which has no public ones: to notice a dead worker before it is asked, and to end
        # the workers with this object.
        workers = getattr(self._loader._iterator, "_workers", ())
        if not all(worker.is_alive() for worker in workers):
            self._loader = self._new_loader()
        self._plan.requests, before = requests, self._loader._iterator
        batches: Any = iter(self._loader)
        if batches is not before and hasattr(batches, "_index_queues"):
            stop = weakref.finalize(
                self, _stop_workers, os.getpid(), batches._workers_done_event, batches._index_queues
            )
            stop.atexit = False  # torch ends them then
        return self._answers(batches, self._plans)

    def _answers(self, batches: Iterator[tuple[Any, Any]], plan: int) -> Iterator[tuple[Any, Any]]:
        while True:
            if plan != self._plans:  # workers answer one plan at a time
                raise RuntimeError("another iteration of this loader was started: only the latest one can be continued")
            answer = next(batches, None)
            if answer is None:
                return
            yield answer


@contextmanager
def worker_errors() -> Iterator[None]:
    """Replace torch's error about a killed worker by one that says what to do."""
    try:
        yield
    except RuntimeError as error:
        if not worker_was_killed(error):
            raise
        raise RuntimeError(f"{WORKER_KILLED}. The next iteration starts new workers") from error


def worker_was_killed(error: RuntimeError) -> bool:
    """Whether an error says that a worker process was killed: ours, or torch's, which may be raised at any line of the
    main process."""
    return str(error).startswith((WORKER_KILLED, "DataLoader worker (pid"))


def check_dataset(dataset: Any, name: str = "dataset") -> int:
    """Return the length of a map-style dataset. Refuse other datasets and empty ones."""
    streams = isinstance(dataset, IterableDataset)  # it inherits a __getitem__ that raises
    if streams or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise ValueError(
            choice(name, type(dataset).__name__, "map-style, with __getitem__ and __len__")
            + " (smdl.SelectiveLoader takes any iterable of batches)"
        )
    if len(dataset) == 0:
        raise ValueError(f"{name} must have at least one sample, got an empty one")
    return len(dataset)


def read_labels(reader: Reader, targets: Callable[[Any], Tensor], rows: np.ndarray, size: int) -> np.ndarray:
    """Read these samples once, `size` at a time, and return the class numbers that `targets` finds in the batches."""
    requests = [
        ReadRequest(0, rows[start : start + size].tolist(), train=False, score=True)
        for start in range(0, len(rows), size)
    ]
    with torch.random.fork_rng(devices=[]), worker_errors():
        found = torch.cat([targets(batch).cpu() for _, batch in reader.read(requests)])
    if len(found) != len(rows):
        raise ValueError(f"collate_fn must make one row of each sample, got {len(found)} rows of {len(rows)} samples")
    return found.numpy()


def are_confirmed(labels: np.ndarray, read: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Whether some samples, read by their rows, have the labels that the dataset holds. A wrapper may show the labels
    of the dataset inside it, whose samples it has in another order."""
    firsts = np.unique(labels, return_index=True)[1]  # samples of all classes: most agree by chance if one is large
    rows = np.union1d(firsts[:COMPARED], np.linspace(0, len(labels) - 1, COMPARED).astype(np.int64))
    return np.array_equal(labels[rows], read(rows))


def stored_labels(dataset: Any) -> np.ndarray | None:
    """Return the labels that a dataset holds: `.targets` or `.labels` if their length fits, or the second of the two
    tensors of a TensorDataset. None if it holds none, or changes them by `.target_transform`."""
    if type(dataset) is Subset:
        whole = stored_labels(dataset.dataset)
        return None if whole is None else whole[np.asarray(dataset.indices, np.int64)]
    if getattr(dataset, "target_transform", None) is None:
        for attribute in ("targets", "labels"):
            found = getattr(dataset, attribute, None)
            if found is not None and hasattr(found, "__len__") and len(found) == len(dataset):
                return found.cpu().numpy() if isinstance(found, Tensor) else np.asarray(found)
    if type(dataset) is TensorDataset and len(dataset.tensors) == 2:
        return dataset.tensors[1].cpu().numpy()
    return None


def check_labels(labels: np.ndarray, name: str, remedy: str = "") -> np.ndarray:
    """Return labels as int64 of shape (N,), or raise an error with what was found."""
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        found = f"{labels.dtype} {labels.shape}"
        raise ValueError(choice(f"the labels of {name}", found, "one whole number per sample") + remedy)
    return labels.astype(np.int64)


def in_order(n: int, size: int) -> list[ReadRequest]:
    """Return the requests that read samples 0..n-1 for scoring, `size` at a time."""
    return [ReadRequest(0, range(start, min(n, start + size)), train=False, score=True) for start in range(0, n, size)]


def _stop_workers(parent: int, done: Any, queues: list[Any]) -> None:
    """Tell the workers to end while their queues still work: if a reader is freed with a cycle of references, torch is
    too late for that and waits five seconds per worker."""
    if os.getpid() == parent and not done.is_set():  # workers have inherited this function
        done.set()
        for queue in queues:
            queue.put(None)


class _Plan:
    """A batch sampler whose batches are set before each iteration."""

    requests: Iterable[ReadRequest] = ()

    def __iter__(self) -> Iterator[ReadRequest]:
        return iter(self.requests)


class _Items(Dataset):
    """Reads requests. A worker seeds its random generators for each request, so an augmentation does not depend on
    which worker reads the request or where a run was resumed. Generators of the main process stay unchanged."""

    def __init__(self, dataset: Dataset, scoring_dataset: Dataset | None, collate: Callable[[Any], Any]) -> None:
        self.dataset, self.scoring_dataset, self.collate = dataset, scoring_dataset, collate

    def __getitems__(self, request: ReadRequest) -> tuple[Any, Any]:
        if get_worker_info() is not None:
            torch.manual_seed(request.key)
            random.seed(request.key)
            np.random.seed(request.key & 0xFFFFFFFF)  # noqa: NPY002
        batch = self._read(self.dataset, request.rows) if request.train else None
        scored = self.dataset if self.scoring_dataset is None else self.scoring_dataset
        return batch, self._read(scored, request.rows) if request.score else None

    def _read(self, dataset: Any, rows: Sequence[int]) -> Any:
        if hasattr(dataset, "__getitems__"):
            return self.collate(dataset.__getitems__(list(rows)))
        return self.collate([dataset[row] for row in rows])


def _identity(batch: Any) -> Any:
    return batch
