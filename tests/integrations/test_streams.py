"""Streams of other libraries behind a SelectiveLoader, with and without workers: what is chosen from them is what is
chosen from a list of the same batches."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import smdl

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]
datasets = pytest.importorskip("datasets")
nodes = pytest.importorskip("torchdata.nodes")
stateful = pytest.importorskip("torchdata.stateful_dataloader")

ROWS, BATCH = 120, 10


def samples():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 4, generator=generator)
    return [{"x": row, "labels": int(row.sum() > 0) + 2 * int(row[0] > 0)} for row in x]


class Endless(IterableDataset):
    """A stream of torch without a length; each worker reads its own part."""

    def __iter__(self):
        worker, rows = torch.utils.data.get_worker_info(), samples()
        return iter(rows if worker is None else rows[worker.id :: worker.num_workers])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.body(x).relu())


def of_torch(workers):
    return DataLoader(Endless(), batch_size=BATCH, num_workers=workers)


def of_torchdata(workers):
    return stateful.StatefulDataLoader(Endless(), batch_size=BATCH, num_workers=workers)


def of_nodes(workers):
    node = nodes.Batcher(nodes.IterableWrapper(samples()), BATCH, drop_last=False)
    collate = torch.utils.data.default_collate
    if workers:
        return nodes.Loader(nodes.ParallelMapper(node, collate, num_workers=workers, method="thread"))
    return nodes.Loader(nodes.Mapper(node, collate))


def of_datasets(workers):
    rows = samples()
    columns = {"x": [row["x"].tolist() for row in rows], "labels": [row["labels"] for row in rows]}
    stream = datasets.Dataset.from_dict(columns).to_iterable_dataset(num_shards=4).with_format("torch")
    return DataLoader(stream, batch_size=BATCH, num_workers=workers)


def trained(stream):
    """Return the batches that a model is trained on, in two epochs."""
    model = Classifier()
    loader, optimizer, found = smdl.SelectiveLoader(stream, model), torch.optim.SGD(model.parameters(), 0.1), []
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch["x"]), batch["labels"]).backward()
            optimizer.step()
            found.append((loader.epoch, batch["x"].clone(), batch["labels"].clone()))
    return found


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stream", [of_torch, of_torchdata, of_nodes, of_datasets])
def test_a_stream_is_chosen_from_as_a_list_of_its_batches(stream, workers):
    batches = list(stream(workers))
    assert sum(len(batch["labels"]) for batch in batches) == ROWS
    found, wanted = trained(stream(workers)), trained(batches)
    assert len(found) == len(wanted) == 2 * -(-len(batches) // 3)
    for (epoch, x, labels), (_, wanted_x, wanted_labels) in zip(found, wanted, strict=True):
        assert torch.equal(x, wanted_x), epoch
        assert torch.equal(labels, wanted_labels), epoch
    known = {tuple(row["x"].tolist()): row["labels"] for row in samples()}
    for _, x, labels in found:
        assert [known[tuple(row)] for row in x.tolist()] == labels.tolist(), "every sample has its own label"


def test_a_stream_of_datasets_resumes_where_it_stopped():
    """Its DataLoader of torch has no state: the batches before are read again and skipped."""
    model = Classifier()
    loader = smdl.SelectiveLoader(of_datasets(2), model)
    whole = [batch["x"].clone() for batch in loader]
    loader = smdl.SelectiveLoader(of_datasets(2), model)
    steps = iter(loader)
    next(steps)
    state = loader.state_dict()
    resumed = smdl.SelectiveLoader(of_datasets(2), model)
    resumed.load_state_dict(state)
    for batch, wanted in zip(resumed, whole[1:], strict=True):
        assert torch.equal(batch["x"], wanted)
