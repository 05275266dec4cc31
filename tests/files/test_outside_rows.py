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
    Path("k0.dedup/written-k0.csv.json").unlink()
    dedup("s1.npy", "--against", "k0.csv", code=2)
    assert "must say what k0.csv was made of" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[1]", "3", '"input"', '{"input": [1]}', "{}", "null"])
def test_a_record_that_does_not_say_what_an_output_was_made_of_is_an_error(text, capsys):
    dedup("s0.npy", "--out", "k0.csv")
    Path("k0.dedup/written-k0.csv.json").write_text(text)
    dedup("s1.npy", "--against", "k0.csv", code=2)
    assert "written-k0.csv.json must say what k0.csv was made of. Run smdl dedup again" in capsys.readouterr().err


def test_a_small_file_may_have_another_time_but_no_other_content(values, capsys):
    dedup("s0.npy", "--out", "k0.csv")
    os.utime("s0.npy", ns=(1, 1))
    dedup("s1.npy", "--against", "k0.csv")
    values[0][39] += 1
    np.save("s0.npy", values[0])
    dedup("s1.npy", "--against", "k0.csv", "--force", code=2)
    assert "s0.npy has changed since" in capsys.readouterr().err


def test_a_large_file_may_not_have_another_time(monkeypatch, capsys):
    monkeypatch.setattr("smdl.files.earlier_outputs.MOST_DIGESTED", os.path.getsize("s0.npy") - 1)
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


def table(name, columns, values):
    pq.write_table(pa.table({column: values[:, place] for place, column in enumerate(columns)}), name)


def test_columns_of_another_file_are_found_by_their_names(values, capsys):
    rows, names = values[0], list("abcdef")
    table("in.parquet", names, rows)
    table("other.parquet", names[::-1], rows[:, ::-1] + np.float32(0.001))
    dedup("in.parquet", "--against", "other.parquet")
    assert kept("kept.csv")[0] == []
    table("names.parquet", list("uvwxyz"), rows)
    dedup("in.parquet", "--against", "names.parquet", code=2)
    assert "unknown column of features 'a'" in capsys.readouterr().err
    table("score.parquet", [*names, "q"], np.column_stack([rows, rows[:, 0]]))
    shutil.copy("score.parquet", "again.parquet")
    dedup("score.parquet", "--keep_by", "q", "--against", "again.parquet", "--out", "q.csv")
    assert kept("q.csv")[0] == []
    np.save("rows.npy", rows)
    dedup("in.parquet", "--against", "rows.npy", "--out", "npy.csv")
    assert kept("npy.csv")[0] == []


@pytest.mark.parametrize("option", ["--query", "--away_from"])
def test_columns_of_a_query_are_found_by_their_names(option, values, capsys):
    names = list("abcdef")
    table("in.parquet", names, values[0])
    table("same.parquet", names, values[1])
    table("turned.parquet", names[::-1], values[1][:, ::-1])
    table("names.parquet", list("uvwxyz"), values[1])
    words = ["select", "in.parquet", "--size", "5", "--quiet", option]
    for file in ("same", "turned"):
        assert main([*words, f"{file}.parquet", "--out", f"{file}.csv"]) == 0
    assert Path("same.csv").read_text() == Path("turned.csv").read_text()
    assert main([*words, "names.parquet", "--out", "no.csv"]) == 2
    assert "unknown column of features 'a'" in capsys.readouterr().err


def test_each_output_of_a_folder_has_a_record_of_its_input(values, capsys):
    dedup("s0.npy", "--out", "w.csv")
    np.save("s0.npy", values[0][::-1])
    dedup("s0.npy", "--out", "w.parquet")
    dedup("s1.npy", "--against", "w.parquet", "--out", "a.csv")
    dedup("s1.npy", "--against", "w.csv", "--out", "b.csv", code=2)
    assert "s0.npy has changed since w.csv was made of it. Run smdl dedup on it again" in capsys.readouterr().err


def edited(name, words):
    """Replace True and False in the column `kept`, as a spreadsheet does."""
    text = Path(name).read_text()
    for old, new in zip(("True", "False"), words, strict=True):
        text = text.replace(f",{old},", f",{new},")
    Path(name).write_text(text)


@pytest.mark.parametrize("words", [("TRUE", "FALSE"), ("true", "false"), ("1", "0")])
def test_a_spreadsheet_may_write_true_and_false_in_its_way(words):
    dedup("s1.npy", "--against", "s0.npy", "--out", "k.csv")
    dedup("s2.npy", "--against", "k.csv", "--out", "before.csv")
    assert main(["select", "s1.npy", "--exclude", "k.csv", "--size", "5", "--out", "c.csv", "--quiet"]) == 0
    edited("k.csv", words)
    dedup("s2.npy", "--against", "k.csv", "--out", "after.csv")
    assert kept("before.csv") == kept("after.csv")
    assert main(["select", "s1.npy", "--exclude", "k.csv", "--size", "5", "--out", "d.csv", "--quiet"]) == 0
    assert Path("c.csv").read_text() == Path("d.csv").read_text()


@pytest.mark.parametrize("words", [("WAHR", "FALSCH"), ("yes", "no"), ("", "False"), ("1", "2"), ("1", "")])
def test_other_words_in_the_column_kept_are_an_error(words, capsys):
    dedup("s1.npy", "--against", "s0.npy", "--out", "k.csv")
    row = 0 if words[1] in ("FALSCH", "no", "2", "") else 10
    edited("k.csv", words)
    dedup("s2.npy", "--against", "k.csv", "--out", "a.csv", code=2)
    message = "k.csv: kept must be true or false, or 1 or 0, got"
    error = capsys.readouterr().err
    assert message in error
    assert error.rstrip().endswith(f"in row {row}")
    for option in ("--exclude", "--initial"):
        assert main(["select", "s1.npy", option, "k.csv", "--size", "5", "--quiet"]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["dedup", "select", "score"])
@pytest.mark.parametrize("option", ["--exclude", "--initial"])
def test_rows_of_an_input_that_has_changed_are_not_taken(command, option, values, capsys):
    more = {"select": ["--size", "5"], "dedup": ["--against", "s0.npy"], "score": []}[command]
    assert main([command, "s1.npy", *more, "--out", "old.csv", "--quiet"]) == 0
    words = ["select", "s1.npy", option, "old.csv", "--size", "3", "--quiet"]
    assert main(words) == (2 if command == "score" else 0), "an output of score names all rows"
    np.save("s1.npy", values[1][::-1])
    assert main([*words, "--out", "new.csv"]) == 2
    message = f"{option}: s1.npy has changed since old.csv was made of it. Run smdl {command} on it again"
    assert message in capsys.readouterr().err


def test_the_output_of_a_smaller_size_has_a_record(values, capsys):
    assert main(["select", "s1.npy", "--size", "3,5", "--out", "old.csv", "--quiet"]) == 0
    words = ["select", "s1.npy", "--initial", "old-3.csv", "--size", "3", "--quiet"]
    assert main(words) == 0
    np.save("s1.npy", values[1][::-1])
    assert main([*words, "--out", "new.csv"]) == 2
    assert "s1.npy has changed since old-3.csv was made of it" in capsys.readouterr().err


def test_the_kept_rows_as_numbers_are_not_excluded(values, capsys):
    dedup("s1.npy", "--out", "kept.npy")
    words = ["select", "s1.npy", "--size", "3", "--quiet"]
    assert main([*words, "--exclude", "kept.npy"]) == 2
    assert "kept.npy holds the rows that smdl dedup keeps, not the copies. --exclude takes" in capsys.readouterr().err
    np.save("mine.npy", np.load("kept.npy")[:5])
    assert main([*words, "--exclude", "mine.npy"]) == 0
    dedup("s1.npy", "--against", "s0.npy", "--out", "some.npy")
    assert main([*words, "--initial", "some.npy", "--out", "more.csv"]) == 0
    np.save("s1.npy", values[1][::-1])
    assert main([*words, "--initial", "some.npy", "--out", "more.csv"]) == 2
    assert "s1.npy has changed since some.npy was made of it" in capsys.readouterr().err
    np.save("kept.npy", np.arange(3))
    assert main([*words, "--exclude", "kept.npy", "--out", "most.csv"]) == 0, "a person wrote these numbers"


@pytest.mark.parametrize("option", ["--exclude", "--initial"])
def test_row_numbers_are_those_of_the_same_files_in_the_same_order(option, capsys):
    assert main(["select", "s0.npy", "s1.npy", "--size", "8", "--out", "old.npy", "--quiet"]) == 0
    words = [option, "old.npy", "--size", "3", "--quiet", "--out"]
    for number, files in enumerate([["s1.npy", "s0.npy"], ["s0.npy"], ["s2.npy", "s0.npy", "s1.npy"]]):
        assert main(["select", *files, *words, f"{number}.csv"]) == 2
        message = f"{option}: old.npy numbers the rows of s0.npy, s1.npy, and the input does not begin with these files"
        assert message in capsys.readouterr().err
    assert main(["select", "s0.npy", "s1.npy", "s2.npy", *words, "3.csv"]) == 0


@pytest.mark.parametrize("option", ["--exclude", "--initial"])
def test_earlier_outputs_fit_their_input_by_any_path(option, monkeypatch, tmp_path):
    assert main(["select", "s1.npy", "--size", "5", "--out", "old.csv", "--quiet"]) == 0
    words = [option, "old.csv", "--size", "3", "--quiet", "--out"]
    for number, path in enumerate(["s1.npy", "./s1.npy", str(tmp_path / "s1.npy")]):
        assert main(["select", path, *words, f"{number}.csv"]) == 0
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    words[1] = "../old.csv"
    assert main(["select", "../s1.npy", *words, "../3.csv"]) == 0
    shutil.rmtree("../old.select")
    assert main(["select", "../s1.npy", *words, "../4.csv"]) == 0, "no record says where s1.npy was"
    monkeypatch.chdir("..")
    found = [[line["row"] for line in kept_lines(f"{number}.csv")] for number in range(5)]
    assert all(each == found[0] for each in found)
    shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}-moved")
    monkeypatch.chdir(tmp_path.parent / f"{tmp_path.name}-moved")
    assert main(["select", "s1.npy", option, "old.csv", "--size", "3", "--quiet", "--out", "5.csv"]) == 0


def kept_lines(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


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
@pytest.mark.parametrize("option", ["--exclude", "--initial"])
def test_embeddings_of_images_fit_the_output_of_their_dedup(option):
    shutil.copy("photos/in/1.png", "photos/in/6.png")
    dedup("photos", "--model", "pixel_model:pixels", "--similarity", "0.999", "--out", "im.csv")
    words = ["select", "im.dedup/embeddings.npy", option, "im.csv", "--quiet", "--out", "c.csv"]
    assert main([*words, "--size", "6" if option == "--exclude" else "1"]) == 0
    chosen = {int(line["index"]) for line in kept_lines("c.csv")}
    assert chosen == (set(range(6)) if option == "--exclude" else {6})


@pytest.mark.usefixtures("photos")
def test_a_folder_of_images_without_a_model_has_a_hint(capsys):
    dedup("photos", code=2)
    assert "Images: smdl label, dedup and score take --model package.module:function" in capsys.readouterr().err


@pytest.mark.usefixtures("photos")
def test_an_image_that_is_written_again_is_embedded_again():
    words = ["photos", "--model", "pixel_model:pixels", "--similarity", "0.999"]
    dedup(*words)
    assert kept("kept.csv")[0] == list(range(6))
    shutil.copy("photos/in/1.png", "photos/in/0.png")
    dedup(*words)
    assert len(kept("kept.csv")[0]) == 5
    assert json.loads(Path("kept.dedup/dedup.json").read_text())["kept"] == 5
