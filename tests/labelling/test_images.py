"""A folder of images as input of `smdl label`, with a function that makes their features; near-copies left out."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smdl.cli.commands import main
from tests.labelling.test_project import fill

COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}
MODULE = """
import numpy as np

def mean_colour(images):
    return np.stack([np.asarray(image, np.float32).mean(axis=(0, 1)) for image in images])

def one_number(images):
    return np.zeros(len(images))

def huge(images):
    return np.full((len(images), 2), 1e6)
"""


@pytest.fixture(autouse=True)
def photos(tmp_path, monkeypatch):
    """Thirty small images in folders named after their colour, and files that are none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "extractor", raising=False)
    Path("extractor.py").write_text(MODULE)
    rng = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        Path("photos", name).mkdir(parents=True)
        for number in range(10):
            pixels = np.clip(rng.normal(colour, 12, (8, 8, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(f"photos/{name}/{number}.png")
    Path("photos/notes.txt").write_text("not an image")
    Path("photos/.hidden.png").write_bytes(b"")


def label(*words):
    return main(["label", *words, "--quiet"])


def test_a_folder_of_images_is_labelled_in_rounds_with_thumbnails():
    assert label("photos", "--model", "extractor:mean_colour", "--size", "3") == 0
    lines = Path("photos.labels/round-1.csv").read_text(encoding="utf-8-sig").splitlines()
    assert lines[0] == "row,image,label"
    assert sorted(line.split(",")[1].split("/")[0] for line in lines[1:]) == ["blue", "green", "red"]
    assert Path("photos.labels/report.html").read_text().count("data:image/jpeg;base64,") == 3
    fill("round-1.csv", lambda row: sorted(COLOURS)[row // 10], folder="photos.labels")
    assert label("photos.labels") == 0
    assert len(Path("photos.labels/answers.jsonl").read_text().splitlines()) == 3


def test_a_path_that_is_not_that_of_its_row_is_told(capsys):
    assert label("photos", "--model", "extractor:mean_colour", "--size", "3") == 0
    path = Path("photos.labels/round-1.csv")
    (row, image, _), *others = [line.split(",") for line in path.read_text(encoding="utf-8-sig").splitlines()[1:]]
    path.write_text(f"row,image,label\n{row},{others[0][1]},red\n" + "".join(f"{n},{at},red\n" for n, at, _ in others))
    assert label("photos.labels") == 1
    assert f"line 2: the image is not that of row {row}, {image!r}, but {others[0][1]!r}" in capsys.readouterr().out


def test_images_that_come_later_do_not_change_the_rows_of_a_project():
    assert label("photos", "--model", "extractor:mean_colour", "--size", "3") == 0
    before = Path("photos.labels/images.csv").read_text()
    Image.new("RGB", (8, 8)).save("photos/black.png")
    assert label("photos.labels") == 0
    assert Path("photos.labels/images.csv").read_text() == before


def test_a_project_that_failed_at_an_image_lists_the_images_again():
    Path("photos/red/3.png").write_bytes(b"damaged")
    assert label("photos", "--model", "extractor:mean_colour", "--size", "3") != 0
    Path("photos/red/3.png").unlink()
    assert label("photos", "--model", "extractor:mean_colour", "--size", "3") == 0
    assert "red/3.png" not in Path("photos.labels/images.csv").read_text()
    assert "0 labels of 29 rows" in Path("photos.labels/report.html").read_text()


def test_the_folder_of_an_image_serves_as_its_label(capsys):
    options = ("--model", "extractor:mean_colour", "--labels", "folder", "--size", "3", "--seeds", "2", "--rounds", "2")
    assert label("simulate", "photos", *options) == 0
    assert "random" in capsys.readouterr().out


def test_an_image_that_cannot_be_read_is_named_and_can_be_left_out(capsys):
    Path("photos/red/3.png").write_bytes(b"damaged")
    assert label("photos", "--model", "extractor:mean_colour") != 0
    assert str(Path("photos/red/3.png")) in capsys.readouterr().err
    assert label("photos", "--model", "extractor:mean_colour", "--skip_nan", "--out", "other") == 0
    assert "0 labels of 29 rows" in Path("other/report.html").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "package.module:function"),
        (("--model", "extractor"), "package.module:function"),
        (("--model", "missing_module:f"), "there is no module 'missing_module'"),
        (("--model", "extractor:g"), "unknown --model in extractor 'g'"),
        (("--model", "extractor:one_number"), "one row of numbers per image, (1, D), got float64 of shape (1,)"),
        (("--model", "extractor:huge"), "numbers up to 65504, got 1e+06"),
        (("--model", "extractor:mean_colour", "--text", "image"), "neither --text nor --features"),
    ],
)
def test_bad_functions_are_told(words, told, capsys):
    assert label("photos", *words) != 0
    assert told in capsys.readouterr().err


def test_a_folder_without_images_is_told(capsys):
    Path("empty").mkdir()
    assert label("empty", "--model", "extractor:mean_colour") != 0
    assert "holds no images" in capsys.readouterr().err


def test_near_copies_are_left_out_and_a_row_with_a_label_is_kept(capsys):
    points = np.random.default_rng(0).normal(size=(10, 8))
    features = np.concatenate([points, points * 2.0, points * 3.0]).astype(np.float32)  # rows i, i + 10, i + 20
    names = np.array([""] * 10 + ["a"] * 4 + ["b"] * 4 + [""] * 12)
    np.savez("rows.npz", features=features, name=names)
    assert label("rows.npz", "--features", "features", "--labels", "name", "--dedup", "0.99") == 0
    assert "8 labels of 2 classes" in capsys.readouterr().out
    assert "8 labels of 10 rows" in Path("rows.labels/report.html").read_text()
    assert label("rows.npz", "--features", "features", "--dedup", "1.5", "--out", "other") != 0


@pytest.mark.parametrize("command", ["dedup", "score"])
def test_near_copies_and_scores_of_images_are_shown_with_thumbnails(command):
    for number in (3, 4):
        Path(f"photos/red/{number}.png").write_bytes(Path("photos/blue/2.png").read_bytes())
    given = [command, "photos", "--model", "extractor:mean_colour", "--similarity", "0.9999", "--quiet"]
    assert main([*given, "--out", "out.csv"]) == 0
    lines = list(csv.DictReader(Path("out.csv").read_text(encoding="utf-8-sig").splitlines()))
    found = {line["text"]: line for line in lines}
    assert len(found) == 30
    assert Path(f"out.{command}/report.html").read_text().count("data:image/jpeg;base64,") > 3
    same = [found[name] for name in ("blue/2.png", "red/3.png", "red/4.png")]
    if command == "dedup":
        assert len({line["group"] for line in same}) == 1
        assert sum(line["kept"].lower() == "true" for line in same) <= 1
    else:
        assert all(int(line["copies"]) >= 2 for line in same)
    Path("photos/red/5.png").write_bytes(b"not an image")
    assert main([*given, "--out", "other.csv"]) == 2
    assert main([*given, "--out", "other.csv", "--skip_nan"]) == 0
    assert len(Path("other.csv").read_text().splitlines()) == 30
