"""smdl select --text: rows chosen by the embeddings of their texts, which are written once and survive a kill. The
model here is a toy; tests/integrations/test_text.py has a real one."""

import csv
import json
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import smdl
from smdl.cli.commands import main
from smdl.common.progress import Display
from smdl.files import embedding, tables, text_model
from smdl.files.choose import Chooser
from smdl.files.job import Job
from smdl.files.request import SelectRequest
from smdl.report.rendering import render
from tests.faults import Killed, killed_at

TEXTS = [
    f'the {"red" if i % 3 else "blue"} {"cat" if i % 7 else "dog"} number {i},\nand its "friend"' for i in range(60)
]
WIDTH = 6


def vector(text):
    """A vector of length 1 that the letters of a text decide."""
    found = np.random.default_rng(zlib.crc32(text.encode())).normal(size=WIDTH)
    return (found / np.linalg.norm(found)).astype(np.float16)


class ToyModel:
    """What a TextModel does, without a network."""

    embedded: list[str] = []  # noqa: RUF012  # all texts that any model has embedded
    width, longest, folder = WIDTH, 256, Path("toy")

    def __init__(self, name):
        self.key = name

    def embed(self, texts):
        full = [text for text in texts if text and text.strip()]
        self.embedded.extend(full)
        return np.array([vector(text) if text in full else [np.nan] * WIDTH for text in texts], np.float16)


@pytest.fixture(autouse=True)
def toy(tmp_path, monkeypatch):
    """Two shards of 40 and 20 texts in the folder `shards`, and chunks of 16 rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embedding, "TextModel", ToyModel)
    monkeypatch.setattr(embedding, "CHUNK", 16)
    ToyModel.embedded.clear()
    write(TEXTS)


def write(texts, folder="shards"):
    Path(folder).mkdir(exist_ok=True)
    for name, part in (("a", slice(0, 40)), ("b", slice(40, None))):
        columns = {"body": pa.array(texts[part], pa.string()), "topic": [f"t{i % 4}" for i in range(len(texts[part]))]}
        pq.write_table(pa.table(columns), f"{folder}/{name}.parquet", row_group_size=13)


def run(out="chosen.npy", **options):
    given = {"inputs": ("shards",), "text": "body", "model": "toy", "size": 8, "out": Path(out), **options}
    Chooser(SelectRequest(**given)).run(Display())
    return np.load(out).tolist() if out.endswith(".npy") else Path(out)


def expected(texts=TEXTS, size=8, **options):
    rows = np.array([vector(text) for text in texts])
    return smdl.select(rows, "facility_location", size, seed=(0, 0, 0), **options).indices.tolist()


@pytest.mark.parametrize("partitions", [1, 3])
def test_the_rows_are_those_of_the_embeddings(partitions):
    found = run(partitions=partitions)
    embeddings = np.load("chosen.select/embeddings.npy")
    np.testing.assert_array_equal(embeddings, np.array([vector(text) for text in TEXTS]))
    np.save("embeddings.npy", embeddings)
    plain = SelectRequest(("embeddings.npy",), Path("plain.npy"), 8, partitions=partitions)
    Chooser(plain).run(Display())
    assert found == np.load("plain.npy").tolist()
    assert partitions > 1 or found == expected()


def test_a_csv_gives_the_rows_of_a_parquet(monkeypatch):
    """Quotes, commas and line ends in a text are kept, also where a block ends; a column of numbers is text too."""
    monkeypatch.setattr(tables, "CSV_BLOCK", 200)
    with Path("texts.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["body", "code"], *([text, 7 * i] for i, text in enumerate(TEXTS))])
    assert run(inputs=("texts.csv",)) == expected()
    assert run(inputs=("texts.csv",), text="code") == expected([str(7 * i) for i in range(60)])


def test_json_lines_give_the_rows_of_a_parquet():
    Path("texts.jsonl").write_text("".join(json.dumps({"body": text, "n": 1}) + "\n" for text in TEXTS))
    assert run(inputs=("texts.jsonl",)) == expected()


def test_the_output_has_the_texts(tmp_path):
    for name in ("chosen.parquet", "chosen.csv", "chosen.json"):
        path = run(name, groups="topic")
        if name.endswith(".parquet"):
            table = pq.read_table(path).to_pydict()
        elif name.endswith(".csv"):
            with path.open(newline="") as file:
                lines = list(csv.DictReader(file))
            table = {key: [line[key] for line in lines] for key in lines[0]}
        else:
            table = {key: [line[key] for line in json.loads(path.read_text())] for key in ("index", "text", "group")}
        assert table["text"] == [TEXTS[int(index)] for index in table["index"]]
        assert table["group"] == [f"t{(int(i) % 40) % 4}" for i in table["index"]]
    page = render(tmp_path / "chosen.select").read_text()
    pair = json.loads(Path("chosen.select/selection.json").read_text())["pairs"][0]
    assert pair["row"]["text"] == " ".join(TEXTS[pair["row"]["row"]].split())
    assert pair["row"]["text"].split(",")[0] in page


def test_an_output_is_excluded_and_complemented_by_its_rows():
    with run("first.csv").open(newline="") as file:
        taken = [int(line["index"]) for line in csv.DictReader(file)]
    assert not set(taken) & set(run(exclude="first.csv"))
    assert run(initial="first.csv") == expected(initial=taken)


def test_an_output_over_texts_fits_their_embeddings_and_the_other_way_round():
    with run("first.csv").open(newline="") as file:
        taken = [int(line["index"]) for line in csv.DictReader(file)]
    embeddings = "first.select/embeddings.npy"
    Chooser(SelectRequest((embeddings,), Path("second.csv"), 8, initial="first.csv")).run(Display())
    with open("second.csv", newline="") as file:
        second = [int(line["index"]) for line in csv.DictReader(file)]
    assert second == expected(initial=taken)
    assert not set(second) & set(run(exclude="second.csv"))
    np.save("other.npy", np.load(embeddings))
    with pytest.raises(ValueError, match="which is not among the input"):
        Chooser(SelectRequest(("other.npy",), Path("third.csv"), 8, initial="first.csv"))


def test_a_killed_command_resumes_at_the_chunk():
    resumed = set()
    for at in range(40):  # killed before each file operation
        shutil.rmtree("chosen.select", ignore_errors=True)
        Path("chosen.npy").unlink(missing_ok=True)
        try:
            with killed_at(Path.cwd(), at):
                run()
        except Killed:
            log = Path("chosen.select/embeddings.jsonl")
            chunks = log.read_text().count("chunk") if log.exists() else 0
            ToyModel.embedded.clear()
            assert run() == expected()
            left = max(0, 60 - 16 * chunks)
            assert len(ToyModel.embedded) - 32 == left, "a chunk on disk is not embedded again"
            resumed.add(chunks)
            continue
        break
    else:
        pytest.fail("it was never finished")
    assert resumed == {0, 1, 2, 3, 4}
    assert not Path("chosen.select/embeddings.npy.part").exists()


def test_embeddings_are_kept_for_the_same_model_and_texts_alone():
    def embedded(**options):
        ToyModel.embedded.clear()
        run(**options)
        return len(ToyModel.embedded) - 32  # these are embedded to check the objective

    assert embedded() == 60
    assert embedded(size=5, groups="topic", objective="redundancy") == 0
    path, log = Path("chosen.select/embeddings.npy"), Path("chosen.select/embeddings.jsonl")
    log.write_text(log.read_text()[:-20])
    assert embedded() == 12, "a record that a kill has cut, of the last chunk"
    assert embedded() == 0
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert embedded() == 12, "a damaged chunk"
    path.write_bytes(path.read_bytes()[:-1])
    assert embedded() == 12, "a truncated file"
    assert embedded(model="other") == 60
    write([text + "!" for text in TEXTS])
    assert embedded(model="other") == 60


def test_outputs_of_the_same_texts_and_model_share_their_embeddings(capsys):
    def embedded(*words):
        ToyModel.embedded.clear()
        command = [words[0], *(words[1:] or ("shards",)), "--text", "body", "--model", "toy"]
        assert main([*command, *(["--size", "8"] if words[0] == "select" else [])]) == 0
        return len(ToyModel.embedded) - 32 * (words[0] == "select")

    assert embedded("dedup") == 60
    assert embedded("score") == 0
    assert "embeddings are copied from kept.dedup/embeddings.npy" in capsys.readouterr().out
    assert embedded("select") == 0
    content = Path("kept.dedup/embeddings.npy").read_bytes()
    maps = sorted(Path().glob("*/embeddings.npy"))
    assert [path.read_bytes() for path in maps] == [content] * 3
    for path in maps:  # a damaged chunk is embedded again, in the copy
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    shutil.rmtree("scores.score")
    Path("scores.csv").unlink()
    assert embedded("score") == 12
    assert Path("scores.score/embeddings.npy").read_bytes() == content
    assert Path("kept.dedup/embeddings.npy").read_bytes() != content, "a copy, no link"
    write([text + "!" for text in TEXTS])
    assert embedded("score") == 60, "other texts"
    shutil.copytree("shards", "others")
    assert embedded("dedup", "others") == 60, "other files"


def test_rows_without_text_are_counted_named_and_left_out_by_the_flag(capsys, monkeypatch):
    texts: list = list(TEXTS)
    texts[3], texts[45], texts[46] = None, "", " \n"
    write(texts)
    command = ["select", "shards", "--text", "body", "--model", "toy", "--size", "8", "--out", "chosen.npy"]
    with monkeypatch.context() as patch:
        patch.setattr(ToyModel, "embed", lambda *_: pytest.fail("the long work has started"))
        assert main(command) == 2
    named = "3 rows have no text: shards/a.parquet row 3, shards/b.parquet row 5, shards/b.parquet row 6. "
    assert named in capsys.readouterr().err
    assert not Path("chosen.select").exists()
    assert main([*command, "--skip_nan"]) == 0
    assert "3 rows with no text" in capsys.readouterr().out
    kept = [row for row in range(60) if row not in (3, 45, 46)]
    found = expected([TEXTS[row] for row in kept])
    assert np.load("chosen.npy").tolist() == [kept[place] for place in found]
    command[command.index("8")] = "58"
    assert main([*command, "--skip_nan"]) == 2
    assert "at most the 57 rows that may be chosen, got 58" in capsys.readouterr().err


def test_the_choice_is_about_texts_of_a_query():
    pq.write_table(pa.table({"body": TEXTS[7:9]}), "query.parquet")
    query = np.array([vector(text) for text in TEXTS[7:9]])
    rows = np.array([vector(text) for text in TEXTS])
    about = smdl.select(smdl.Pool(rows, query=query), "facility_location", 8, seed=(0, 0, 0)).indices.tolist()
    assert run(query="query.parquet") == about
    assert about[0] in (7, 8)


def test_explain_says_what_the_embeddings_cost(capsys):
    assert main(["select", "shards", "--text", "body", "--model", "toy", "--size", "8", "--explain"]) == 0
    printed = capsys.readouterr().out
    assert "2 files, 60 rows of 6 × float16" in printed
    assert "embeddings: by toy, of the first 256 tokens of each text; 720 B on disk, about a second" in printed
    assert not Path("chosen.select").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("shards --text body", "--text needs --model"),
        ("shards --model toy", "--model embeds texts: add --text"),
        ("shards --text bdy --model toy", "shards/a.parquet: unknown column of text 'bdy'; did you mean 'body'?"),
        ("shards --text body --model toy --features topic", "--features and --text both say what the features are"),
        ("numbers.parquet --text x --model toy", "--text must be a column of text, got x of int64"),
        ("x.npy --text x --model toy", "--text reads a column of .parquet, .csv or .jsonl, got x.npy"),
        ("empty.parquet --text body --model toy", "empty.parquet has no rows"),
        ("shards --text body --model toy --objective feature_coverage", "feature_coverage"),
        (
            "shards --text body --model toy --query x.npy",
            "--text reads a column of .parquet, .csv or .jsonl, got x.npy",
        ),
        ("shards --text body --model toy --query none.parquet", "1 row has no text: none.parquet row 0"),
    ],
)
def test_bad_input_is_found_before_the_texts_are_embedded(arguments, message, capsys, monkeypatch):
    pq.write_table(pa.table({"x": [1, 2]}), "numbers.parquet")
    pq.write_table(pa.table({"body": pa.array([], pa.string())}), "empty.parquet")
    pq.write_table(pa.table({"body": [""]}), "none.parquet")
    np.save("x.npy", np.ones((3, 2)))
    monkeypatch.setattr(Job, "run", lambda *_: pytest.fail("the long work has started"))
    assert main(["select", *arguments.split(), "--size", "2"]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert len(ToyModel.embedded) <= 32
    assert not Path("chosen.select").exists()


def test_a_full_disk_is_found_before_the_texts_are_embedded(capsys, monkeypatch):
    import errno
    import os

    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert main(["select", "shards", "--text", "body", "--model", "toy", "--size", "8", "--quiet"]) == 1
    assert "embeddings.npy cannot be written: the disk is full" in capsys.readouterr().err
    assert len(ToyModel.embedded) == 32


def test_a_folder_without_a_model_and_a_missing_library_are_one_sentence(monkeypatch):
    with pytest.raises(ValueError, match="shards holds no model: it has neither"):
        text_model.find_model("shards")
    for library in ("huggingface_hub", "sentence_transformers"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ValueError, match=r"pip install 'submodular-data-loader\[text\]'"):
        text_model.find_model("some/model")
