"""smdl dedup --against: test sets and earlier outputs, one or several, as arrays, texts or images, also from another
folder; never rows that have changed since."""

import csv
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import smdl
from smdl.cli.commands import main
from smdl.files import embedding
from tests.files.test_text import ToyModel

MODULE = """
import numpy as np

def pixels(images):
    return np.stack([np.asarray(image, np.float32).ravel() / 255 for image in images])
"""


@pytest.fixture(autouse=True)
def values(tmp_path, monkeypatch):
    """s0.npy, s1.npy and s2.npy: 40 rows each, of which ten are like rows of the shards before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("smdl.report.dedup_page.render_dedup", lambda folder: folder)
    monkeypatch.setattr("smdl.report.selection_page.render_selection", lambda folder: folder)
    rng = np.random.default_rng(0)
    found = rng.normal(size=(3, 40, 6)).astype(np.float32)
    found[1, :10], found[2, :5], found[2, 5:10] = found[0, :10] + 0.01, found[0, 10:15] + 0.01, found[1, 20:25] + 0.01
    for number, part in enumerate(found):
        np.save(f"s{number}.npy", part)
    return found


def dedup(*words, code=0):
    assert main(["dedup", *map(str, words), "--quiet"]) == code


def kept(path):
    with open(path, newline="") as file:
        lines = list(csv.DictReader(file))
    return np.flatnonzero([line["kept"].lower() == "true" for line in lines]).tolist(), lines


def test_a_third_shard_is_compared_with_two_outputs(values):
    dedup("s0.npy", "--out", "k0.csv")
    dedup("s1.npy", "--against", "k0.csv", "--out", "k1.csv")
    (first, _), (second, _) = kept("k0.csv"), kept("k1.csv")
    before = np.concatenate([values[0][first], values[1][second]])
    expected = smdl.deduplicate(values[2], against=before)
    assert len(expected.kept) < 31
    for words in (["k0.csv", "k1.csv"], ["k[01].csv"], ["k0.csv", "--against", "k1.csv"]):
        dedup("s2.npy", "--against", *words, "--out", "k2.csv", "--force")
        found, lines = kept("k2.csv")
        assert found == expected.kept.tolist()
        assert (lines[0]["against"], lines[0]["copy_of_against"]) == ("k0.csv", "10")
        assert lines[5]["against"] == "k1.csv", "of the rows of an output, its line"
        assert kept("k1.csv")[1][int(lines[5]["copy_of_against"])]["row"] == "20"
    Path("tests").mkdir()
    for number in (0, 1):
        shutil.copy(f"s{number}.npy", f"tests/{number}.npy")
    dedup("s2.npy", "--against", "tests", "--out", "folder.csv")
    assert kept("folder.csv")[0] == smdl.deduplicate(values[2], against=np.concatenate(values[:2])).kept.tolist()


def test_what_an_output_was_made_of_must_be_the_same(values, capsys):
    dedup("s0.npy", "--out", "k0.csv")
    np.save("s0.npy", values[0] + 1)
    dedup("s1.npy", "--against", "k0.csv", code=2)
    assert "s0.npy has changed since k0.csv was made of it. Run smdl dedup on it again" in capsys.readouterr().err
    assert not Path("kept.csv").exists()
    np.save("s0.npy", values[0])
    dedup("s0.npy", "--out", "k0.csv")
    dedup("s1.npy", "--against", "k0.csv")
    Path("k0.csv").write_text(Path("k0.csv").read_text().replace("s0.npy,39,", "s0.npy,40,"))
    dedup("s1.npy", "--against", "k0.csv", code=2)
    assert "names rows that its input does not have" in capsys.readouterr().err
    Path("k0.csv").write_text(Path("k0.csv").read_text().replace("s0.npy,40,", "s9.npy,39,"))
    dedup("s1.npy", "--against", "k0.csv", code=2)
    assert "k0.csv names s9.npy, which was not among its input" in capsys.readouterr().err
    Path("k0.dedup/dedup.json").unlink()
    dedup("s1.npy", "--against", "k0.csv", code=2)
    assert "must say what k0.csv was made of" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[1]", "3", '"input"', '{"input": [1]}', "{}", "null"])
def test_a_record_that_does_not_say_what_an_output_was_made_of_is_an_error(text, capsys):
    dedup("s0.npy", "--out", "k0.csv")
    Path("k0.dedup/dedup.json").write_text(text)
    dedup("s1.npy", "--against", "k0.csv", code=2)
    assert "dedup.json must say what k0.csv was made of. Run smdl dedup again" in capsys.readouterr().err


def test_a_small_file_may_have_another_time_but_no_other_content(values, capsys):
    dedup("s0.npy", "--out", "k0.csv")
    os.utime("s0.npy", ns=(1, 1))
    dedup("s1.npy", "--against", "k0.csv")
    values[0][39] += 1
    np.save("s0.npy", values[0])
    dedup("s1.npy", "--against", "k0.csv", "--force", code=2)
    assert "s0.npy has changed since" in capsys.readouterr().err


def test_a_large_file_may_not_have_another_time(monkeypatch, capsys):
    monkeypatch.setattr("smdl.files.outside_rows.MOST_DIGESTED", os.path.getsize("s0.npy") - 1)
    dedup("s0.npy", "--out", "k0.csv")
    dedup("s1.npy", "--against", "k0.csv")
    os.utime("s0.npy", ns=(1, 1))
    dedup("s1.npy", "--against", "k0.csv", "--force", code=2)
    assert "s0.npy has changed since" in capsys.readouterr().err


def test_an_output_is_found_from_another_folder(monkeypatch):
    dedup("s0.npy", "--out", "k0.csv")
    dedup("s1.npy", "--against", "k0.csv", "--out", "here.csv")
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    dedup("../s1.npy", "--against", "../k0.csv", "--out", "there.csv")
    assert kept("there.csv")[0] == kept("../here.csv")[0]
    Path("moved").mkdir()
    for name in ("s0.npy", "k0.csv", "k0.dedup"):
        shutil.move(f"../{name}", "moved")
    dedup("../s1.npy", "--against", "moved/k0.csv", "--out", "after.csv")
    assert kept("after.csv")[0] == kept("../here.csv")[0]


def test_an_output_that_keeps_nothing_has_no_copies(values):
    shutil.copy("s0.npy", "same.npy")
    dedup("s0.npy", "--against", "same.npy", "--out", "none.csv")
    assert kept("none.csv")[0] == []
    dedup("s1.npy", "--against", "none.csv")
    assert kept("kept.csv")[0] == smdl.deduplicate(values[1]).kept.tolist()


def test_the_output_is_not_one_of_the_files_it_is_compared_with(capsys):
    dedup("s0.npy", "--out", "k0.csv")
    dedup("s0.npy", "--against", "k*.csv", "--out", "k0.csv", code=2)
    assert "--out must not be one of the files of --against, got k0.csv" in capsys.readouterr().err


def test_an_array_is_compared_with_a_column_of_another_name(values, capsys):
    pq.write_table(pa.table({"emb": list(values[1]), "other": list(values[0])}), "x.parquet")
    dedup("x.parquet", "--features", "emb", "--against", "s0.npy")
    assert kept("kept.csv")[0] == smdl.deduplicate(values[1], against=values[0]).kept.tolist()
    words = ["select", "x.parquet", "--features", "emb", "--size", "5", "--quiet"]
    assert main([*words, "--query", "s0.npy"]) == 0
    assert main([*words, "--away_from", "s0.npy"]) == 0
    pq.write_table(pa.table({"a": list(values[1]), "b": list(values[0])}), "y.parquet")
    dedup("x.parquet", "--features", "emb", "--against", "y.parquet", code=2)
    assert "unknown column of features 'emb'" in capsys.readouterr().err


def test_texts_are_compared_with_outputs_of_the_same_model(monkeypatch, capsys):
    monkeypatch.setattr(embedding, "TextModel", ToyModel)
    texts = [f"text {number}" for number in range(30)]
    for name, some in (("a", texts[:20]), ("b", texts[10:]), ("test", texts[25:])):
        pq.write_table(pa.table({"body": some}), f"{name}.parquet")
    words = ["--text", "body", "--model", "toy", "--similarity", "0.999"]
    dedup("a.parquet", *words, "--out", "ka.csv")
    ToyModel.embedded.clear()
    dedup("b.parquet", *words, "--against", "ka.csv", "test.parquet", "--out", "kb.csv")
    found, lines = kept("kb.csv")
    assert found == list(range(10, 15))
    assert [(lines[row]["against"], lines[row]["copy_of_against"]) for row in (0, 15)] == [
        ("ka.csv", "10"), ("test.parquet", "0")
    ]  # fmt: skip
    assert sorted(ToyModel.embedded) == sorted(texts[10:] + texts[25:]), "those of ka.csv are read"
    words[3] = "other"
    dedup("b.parquet", *words, "--against", "ka.csv", "--out", "other.csv", code=2)
    assert "ka.csv was made by another --model" in capsys.readouterr().err
    words[3] = "toy"
    content = bytearray(Path("ka.dedup/embeddings.npy").read_bytes())
    content[-1] ^= 1
    Path("ka.dedup/embeddings.npy").write_bytes(content)
    dedup("b.parquet", *words, "--against", "ka.csv", "--out", "other.csv", code=2)
    assert "embeddings.npy is damaged" in capsys.readouterr().err
    Path("ka.dedup/embeddings.npy").unlink()
    dedup("b.parquet", *words, "--against", "ka.csv", "--out", "other.csv", code=2)
    assert "are missing, or of other rows" in capsys.readouterr().err


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Folders of random images, `test` with two of those of `photos`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pixel_model", raising=False)
    Path("pixel_model.py").write_text(MODULE)
    rng = np.random.default_rng(0)
    for folder in ("photos/in", "more", "test"):
        Path(folder).mkdir(parents=True)
    for number in range(12):
        place = "photos/in" if number < 6 else "more"
        Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8)).save(f"{place}/{number}.png")
    for number in (2, 7):
        shutil.copy(f"{'photos/in' if number < 6 else 'more'}/{number}.png", f"test/{number}.png")


@pytest.mark.usefixtures("photos")
def test_images_are_compared_with_folders_and_earlier_outputs(capsys):
    words = ["--model", "pixel_model:pixels", "--similarity", "0.999"]
    dedup("photos", *words, "--against", "test", "--out", "k0.csv")
    found, lines = kept("k0.csv")
    assert found == [0, 1, 3, 4, 5]
    assert (lines[2]["against"], lines[2]["copy_of_against"]) == ("test/2.png", "0")
    for number in (1, 2):
        shutil.copy(f"photos/in/{number}.png", f"more/again{number}.png")
    dedup("more", *words, "--against", "test", "k0.csv", "--out", "k1.csv")
    found, lines = kept("k1.csv")
    assert {line["text"]: line["against"] for line in lines if line["against"]} == {
        "7.png": "test/7.png", "again1.png": "k0.csv", "again2.png": "test/2.png"
    }  # fmt: skip
    dedup("more", *words, "--against", "s0.npy", "--out", "k2.csv", code=2)
    assert "--against must be a folder of images, or an output of smdl dedup, got s0.npy" in capsys.readouterr().err
    Path("test/8.png").write_bytes(b"no image")
    dedup("more", *words, "--against", "test", "--out", "k2.csv", code=2)
    assert "1 rows of test/8.png have numbers" in capsys.readouterr().err


@pytest.mark.usefixtures("photos")
def test_an_image_that_is_written_again_is_embedded_again():
    words = ["photos", "--model", "pixel_model:pixels", "--similarity", "0.999"]
    dedup(*words)
    assert kept("kept.csv")[0] == list(range(6))
    shutil.copy("photos/in/1.png", "photos/in/0.png")
    dedup(*words)
    assert len(kept("kept.csv")[0]) == 5
    assert json.loads(Path("kept.dedup/dedup.json").read_text())["kept"] == 5
