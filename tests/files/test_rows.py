"""Rows of every format, local or by URL: the same numbers; and what does not fit together is named."""

import json
import pickle
import struct

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from smdl.files import row_files
from smdl.files.rows import numbered, open_file, open_rows

RNG = np.random.default_rng(0)
X = RNG.normal(size=(100, 6)).astype(np.float32)
Y = np.arange(100) % 3
TEXT = np.array([f"g{number}" for number in Y])
ROWS = np.array([0, 3, 29, 30, 31, 77, 99])
WIDE = {f"f{number}": X[:, number] for number in range(6)}


def lists(values):
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def write(path, kind):
    """Write X, and where the format has columns also Y and TEXT. Return the roles to read."""
    table = {"y": Y, "text": TEXT}
    match kind:
        case "a.npy":
            np.save(path, X)
        case "f-order.npy":
            np.save(path, np.asfortranarray(X))
        case "a.npz":
            np.savez(path, X=X, y=Y, text=TEXT)
        case "compressed.npz":
            np.savez_compressed(path, X=X, y=Y, text=TEXT)
        case "a.safetensors":
            save_file({"X": X, "y": Y}, path)
            return {"labels": "y"}
        case "fixed.parquet":
            pq.write_table(pa.table({"X": lists(X), **table}), path, row_group_size=30)
        case "list.parquet":
            pq.write_table(pa.table({"X": list(X), **table}), path, row_group_size=30)
        case "wide.parquet":
            pq.write_table(pa.table({**WIDE, **table}), path, row_group_size=30)
        case "a.csv":
            pyarrow.csv.write_csv(pa.table({**WIDE, **table}), path)
        case "wide.jsonl" | "list.jsonl":
            every = [{name: float(values[i]) for name, values in WIDE.items()} for i in range(100)]
            if kind == "list.jsonl":
                every = [{"X": X[i].tolist()} for i in range(100)]
            lines = [{**row, "y": int(Y[i]), "text": str(TEXT[i])} for i, row in enumerate(every)]
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {} if kind.endswith(".npy") else {"labels": "y", "groups": "text"}


KINDS = ("a.npy", "f-order.npy", "a.npz", "compressed.npz", "a.safetensors", "fixed.parquet", "list.parquet",
         "wide.parquet", "a.csv", "wide.jsonl", "list.jsonl")  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_rows_and_columns(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(row_files, "BLOCK", 300)  # several blocks
    roles = write(tmp_path / kind, kind)
    source = pickle.loads(pickle.dumps(open_rows([str(tmp_path / kind)], roles=roles)))  # as Ray sends it
    assert (len(source), source.width) == (100, 6)
    np.testing.assert_allclose(source.features_at(ROWS), X[ROWS], rtol=1e-6)
    np.testing.assert_allclose(np.concatenate(list(source.blocks(0))), X, rtol=1e-6)
    np.testing.assert_allclose(source.whole(), X, rtol=1e-6)
    for role, expected in {"labels": Y, "groups": TEXT}.items():
        if role in roles:
            assert source.values(role, ROWS).tolist() == expected[ROWS].tolist()
            assert source.column(role).tolist() == expected.tolist()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "f-order.npy"])
@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_urls_are_read_like_local_files(kind, scheme, tmp_path):
    roles = write(tmp_path / kind, kind)
    url = f"file://{tmp_path}/{kind}"
    if scheme == "memory":
        fsspec.filesystem("memory").pipe(f"/rows/{kind}", (tmp_path / kind).read_bytes())
        url = f"memory://rows/{kind}"
    source = open_rows([url], roles=roles)
    np.testing.assert_allclose(source.features_at(ROWS), X[ROWS], rtol=1e-6)
    assert source.fingerprint() == open_rows([url], roles=roles).fingerprint()


def test_a_folder_of_shards_is_one_source_in_the_order_of_names(tmp_path):
    for number, part in enumerate(np.split(X, [10, 40])):
        np.save(tmp_path / f"shard-{number}.npy", part)
    (tmp_path / "notes.txt").write_text("not a shard")
    source = open_rows([str(tmp_path)])
    np.testing.assert_array_equal(source.features_at(ROWS), X[ROWS])
    shards, rows = source.place(np.array([9, 10, 99]))
    assert (shards.tolist(), rows.tolist()) == ([0, 1, 2], [9, 0, 59])
    assert open_rows([str(tmp_path / "*.npy")]).fingerprint() == source.fingerprint()
    for path in tmp_path.iterdir():
        fsspec.filesystem("memory").pipe(f"/folder/{path.name}", path.read_bytes())
    for url in ("memory://folder", "memory://folder/*.npy"):
        np.testing.assert_array_equal(open_rows([url]).features_at(ROWS), X[ROWS])


def test_one_local_array_is_a_memory_map_and_not_a_copy(tmp_path):
    np.save(tmp_path / "a.npy", X)
    assert isinstance(open_rows([str(tmp_path / "a.npy")]).whole(), np.memmap)


def test_bfloat16_is_widened_exactly(tmp_path):
    values = torch.from_numpy(X).bfloat16()
    save_torch({"X": values}, tmp_path / "a.safetensors")
    source = open_rows([str(tmp_path / "a.safetensors")])
    assert source.dtype == np.float32
    np.testing.assert_array_equal(source.features_at(ROWS), values.float().numpy()[ROWS])
    np.testing.assert_array_equal(source.whole(), values.float().numpy())


def test_missing_values_of_tables_are_nan(tmp_path):
    values = [list(map(float, row)) for row in X[:4]]
    partly = [*values[2][:5], None]
    for kind, missing, count in ((pa.list_(pa.float32(), 6), values[1], 0), (pa.list_(pa.float32()), None, 6)):
        rows = [
            values[0],
            missing,
            partly,
            values[3],
        ]  # older versions of pyarrow write no missing list of fixed length
        pq.write_table(pa.table({"X": pa.array(rows, kind)}), tmp_path / "a.parquet")
        found = open_rows([str(tmp_path / "a.parquet")]).features_at(np.arange(4))
        np.testing.assert_array_equal(np.isnan(found).sum(axis=1), [0, count, 1, 0])
        np.testing.assert_allclose(found[3], X[3])
    (tmp_path / "a.csv").write_text("a,b\n1,2\n,3\n")
    np.testing.assert_array_equal(open_rows([str(tmp_path / "a.csv")]).features_at(np.arange(2)), [[1, 2], [np.nan, 3]])


def test_the_first_list_that_is_there_says_the_width(tmp_path):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"X": [None, [], [1.0, 2.0]], "n": [1, 2, 3]}), path)
    file = open_file(path)
    assert file.columns["X"].width == 2
    pq.write_table(pa.table({"X": [None, [1.0, 2.0]]}), path)
    np.testing.assert_array_equal(open_rows([path]).whole(), [[np.nan, np.nan], [1, 2]])


@pytest.mark.parametrize("first", [[], None])
def test_lists_of_several_lengths_are_no_features_beside_other_columns(first, tmp_path):
    path = str(tmp_path / "a.parquet")
    tags = pa.array([first, [0], [0, 1], [0, 1, 2]], pa.list_(pa.int64()))
    numbers = [1.0, 2.0, 3.0, 4.0]
    pq.write_table(pa.table({"X": lists(X[:4]), "tags": tags}), path)
    source = open_rows([path])
    assert source.features == ("X",)
    assert source.left_out() == ["tags (lists of several lengths)"]
    damaged = pa.array([[0.0, 1.0], [0.0], [0.0, 1.0], [0.0, 1.0]], pa.list_(pa.float32()))
    pq.write_table(pa.table({"X": damaged, "a": numbers}), path)
    with pytest.raises(ValueError, match="must have one length"):
        open_rows([path], ()).whole()
    pq.write_table(pa.table({"a": numbers, "b": numbers, "tags": tags}), path)
    np.testing.assert_array_equal(open_rows([path]).whole(), np.column_stack([numbers, numbers]))
    with pytest.raises(ValueError, match="must have one length, got 1 and"):
        open_rows([path], ["tags"]).whole()


def test_missing_numbers_are_one_group_though_shards_differ_in_type(tmp_path):
    for name, groups in (("a", [np.nan, 1.5, np.nan]), ("b", [1, 2, 1])):
        pq.write_table(
            pa.table({"X": lists(X[:3]), "g": pa.array(groups, from_pandas=False)}), tmp_path / f"{name}.parquet"
        )
    names, numbers = numbered(open_rows([str(tmp_path)], ["X"], {"groups": "g"}).column("groups"))
    assert [str(name) for name in names] == ["nan", "1.5", "1", "2"]
    assert numbers.tolist() == [0, 1, 0, 2, 3, 2]


def test_a_missing_group_is_none_and_a_missing_label_is_empty(tmp_path):
    pq.write_table(pa.table({"X": [[0.0], [1.0], [2.0]], "kind": ["None", None, "b"]}), tmp_path / "a.parquet")
    found = open_rows([str(tmp_path / "a.parquet")], "X", {"groups": "kind", "labels": "kind"})
    assert found.column("groups").tolist() == ["None", None, "b"]
    assert found.column("labels").tolist() == ["None", "", "b"]


def test_row_groups_without_a_wanted_row_are_not_read(tmp_path, monkeypatch):
    write(tmp_path / "fixed.parquet", "fixed.parquet")
    read, original = [], pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda self, *a: (read.append(a[1]), original(self, *a))[1])
    found = open_rows([str(tmp_path / "fixed.parquet")]).features_at(np.array([31, 32, 99]))
    np.testing.assert_array_equal(found, X[[31, 32, 99]])
    assert read == [[1], [3]]


def test_the_fingerprint_changes_with_the_file(tmp_path):
    np.save(tmp_path / "a.npy", X)
    before = open_rows([str(tmp_path / "a.npy")]).fingerprint()
    np.save(tmp_path / "a.npy", X + 1)
    assert open_rows([str(tmp_path / "a.npy")]).fingerprint() != before


def test_nothing_is_unpickled(tmp_path):
    for name, save in (("a.npy", np.save), ("a.npz", lambda path, array: np.savez(path, X=array))):
        save(tmp_path / name, np.array([{"a": 1}, None], dtype=object)[:, None])
        with pytest.raises(ValueError, match="holds Python objects, which are not read"):
            open_rows([str(tmp_path / name)])


def save_table(path, **columns):
    pq.write_table(pa.table(columns), path)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda _: None, {}, "a.npy cannot be read: No such file or directory"),
        (lambda at: (at / "a.npy").write_bytes(b"not numpy"), {}, "a.npy cannot be read: "),
        (lambda at: np.save(at / "a.npy", np.zeros((2, 3, 4))), {}, "one or two dimensions, got shape (2, 3, 4)"),
        (lambda at: np.save(at / "a.npy", np.zeros((0, 3))), {}, "a.npy has no rows: leave it out"),
        (lambda at: np.save(at / "a.npy", np.array([["a"]])), {}, "a.npy has no column of numbers for the features"),
        (lambda at: np.save(at / "a.npy", X), {"features": ["x"]}, "unknown column of features 'x'"),
        (lambda at: np.save(at / "a.npy", X), {"roles": {"labels": "label"}}, "unknown column of labels 'label'"),
        (lambda at: np.save(at / "a.npy", X), {"roles": {"labels": "no.npy"}}, "no.npy cannot be read"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_named_with_the_reason(make, options, message, tmp_path):
    make(tmp_path)
    with pytest.raises(ValueError, match=r"a.npy|no.npy") as caught:
        open_rows([str(tmp_path / "a.npy")], **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (X[:, :5], "shards must have one width, got 6 in "),
        (X.astype(np.float16), "shards must have one type, got float32 in "),
        (X[:0], "b.npy has no rows"),
        (X[:, 0], "shards must have one width, got 6 in "),
        (X[:, :0], "b.npy cannot be read: features has no columns, got shape"),
    ],
)
def test_shards_that_differ_are_refused(other, message, tmp_path):
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", other)
    with pytest.raises(ValueError, match=r"b.npy") as caught:
        open_rows([str(tmp_path)])
    assert message in str(caught.value)


def test_ragged_rows_are_refused_with_their_place(tmp_path):
    save_table(tmp_path / "a.parquet", X=[[1.0, 2.0], [3.0, 4.0], [5.0]])
    source = open_rows([str(tmp_path / "a.parquet")])
    with pytest.raises(ValueError, match=r"a.parquet cannot be read: .*one length, got 2 and 1 in row 2"):
        source.features_at(np.arange(3))


def test_what_is_ambiguous_is_asked(tmp_path):
    np.savez(tmp_path / "a.npz", A=X, B=X)
    with pytest.raises(ValueError, match=r"several matrices \(A, B\): choose one by --features"):
        open_rows([str(tmp_path / "a.npz")])
    assert open_rows([str(tmp_path / "a.npz")], ["B"]).features == ("B",)
    np.savez(tmp_path / "a.npz", A=X, embeddings=X)
    assert open_rows([str(tmp_path / "a.npz")]).features == ("embeddings",)
    np.save(tmp_path / "b.npy", X)
    with pytest.raises(ValueError, match=r"files of several kinds \(.npy, .npz\)"):
        open_rows([str(tmp_path)])
    with pytest.raises(ValueError, match="is given twice"):
        open_rows([str(tmp_path / "b.npy")] * 2)
    with pytest.raises(ValueError, match="matches no file"):
        open_rows([str(tmp_path / "*.csv")])
    with pytest.raises(ValueError, match=r"choose a file of the kind .npy, .npz"):
        open_rows([str(tmp_path / "b.txt")])


def test_arrays_of_several_lengths_in_one_file_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=Y[:5])
    with pytest.raises(ValueError, match=r"one row per sample, got 100 and 5 \(y\)"):
        open_rows([str(tmp_path / "a.npz")])
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y[:5])
    with pytest.raises(ValueError, match=r"y.npy must have as many rows as the input, 100, got 5"):
        open_rows([str(tmp_path / "x.npy")], roles={"labels": str(tmp_path / "y.npy")})


def test_a_header_that_lies_about_its_size_is_refused(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", 1 << 60))
    with pytest.raises(ValueError, match="no header of safetensors"):
        open_rows([str(tmp_path / "a.safetensors")])


def test_columns_may_come_from_files_beside(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    source = open_rows([str(tmp_path / "x.npy")], roles={"labels": str(tmp_path / "y.npy")})
    assert source.values("labels", ROWS).tolist() == Y[ROWS].tolist()
    assert source.column("labels").tolist() == Y.tolist()
