# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false
"""A folder is a project: rounds, answers, and nothing that a person typed is lost."""

import csv
import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from smdl.cli.commands import main
from smdl.common import storage
from smdl.common.progress import Display
from smdl.common.storage import locked
from smdl.labelling.input_rows import LabelSettings
from smdl.labelling.project import Project
from smdl.labelling.project_folder import ProjectFolder

pytestmark = pytest.mark.usefixtures("rows")
NAMES = ("cat", "dog", "emu")


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """A file of 90 rows in three clusters; row i is of class i % 3. The process works in its folder."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    centres = 4 * np.eye(3, 5)
    np.savez("rows.npz", features=(centres[np.arange(90) % 3] + rng.normal(size=(90, 5))).astype(np.float32))
    return tmp_path


def begin(**options):
    project = Project(Path("rows.labels"), LabelSettings(("rows.npz",), size=6, **options))
    return project.run(Display())


def resume(**options):
    project = Project(Path("rows.labels"))
    return project, project.run(Display(), **options)


def fill(path, answer=lambda row: NAMES[row % 3], keep=lambda _: True, folder="rows.labels"):
    """Type answers into a round."""
    path = Path(folder) / path
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = list(csv.DictReader(file))
    for place, line in enumerate(lines):
        if keep(place):
            line["label"] = answer(int(line["row"]))
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    return [int(line["row"]) for line in lines]


def state():
    """The names and contents of all files that people fill in."""
    return {path.name: path.read_bytes() for path in Path("rows.labels").glob("*-*.csv")}


def test_a_project_that_failed_at_its_input_may_begin_again_with_other_options():
    features = np.load("rows.npz")["features"]
    features[7, 0] = np.nan
    np.savez("rows.npz", features=features)
    with pytest.raises(ValueError, match="row 7"):
        begin()
    assert begin(skip_nan=True).written
    with pytest.raises(ValueError, match="is a project already"):
        begin(skip_nan=True)


@pytest.mark.parametrize(
    "lost", [("rounds.jsonl",), ("rounds.jsonl", "answers.jsonl"), ("rounds.jsonl", "round-1.csv")]
)
def test_a_project_that_lost_its_list_of_rounds_does_not_begin_again(lost):
    begin()
    fill("round-1.csv", keep=lambda place: place < 4)
    resume()
    for name in lost:
        Path("rows.labels", name).unlink()
    with pytest.raises(ValueError, match="is a project already"):
        begin()


def test_answers_keep_their_input_if_the_list_of_rounds_was_lost():
    begin()
    fill("round-1.csv", keep=lambda place: place < 4)
    resume()
    Path("rows.labels/rounds.jsonl").unlink()
    np.savez("rows.npz", features=np.random.default_rng(1).normal(size=(91, 5)))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"has changed \(90 rows, now 91\)"):
            resume()


def test_a_filled_round_is_read_and_the_next_one_is_written():
    assert [path.name for path in begin().written] == ["round-1.csv"]
    asked = fill("round-1.csv")
    project, progress = resume()
    assert progress.answered == 6
    assert [path.name for path in progress.written] == ["round-2.csv"]
    assert project.labels.answers == {row: NAMES[row % 3] for row in asked}
    assert not set(asked) & set(ProjectFolder(Path("rows.labels")).rounds[1].rows)


def test_a_half_filled_round_is_continued():
    begin()
    fill("round-1.csv", keep=lambda place: place < 4)
    before = state()
    _, progress = resume()
    assert progress.open == {"round-1.csv": (2, 6)}
    assert progress.written == []
    assert state() == before
    fill("round-1.csv")
    assert [path.name for path in resume()[1].written] == ["round-2.csv"]


def test_more_writes_a_round_that_does_not_ask_for_open_rows_again():
    begin()
    asked = fill("round-1.csv", keep=lambda place: place < 4)
    project, progress = resume(more=True)
    assert [path.name for path in progress.written] == ["round-2.csv"]
    assert not set(asked) & set(project.folder.rounds[1].rows)


def test_a_round_is_never_overwritten():
    begin()
    fill("round-1.csv")
    Path("rows.labels/round-2.csv").write_text("notes of a person")
    _, progress = resume()
    assert [path.name for path in progress.written] == ["round-3.csv"]
    assert Path("rows.labels/round-2.csv").read_text() == "notes of a person"


def test_the_same_command_again_changes_nothing():
    begin()
    fill("round-1.csv")
    resume()
    before = state()
    _, progress = resume()
    assert progress.answered == 0
    assert state() == before


def test_changed_answers_count_and_emptied_ones_are_kept():
    begin()
    asked = fill("round-1.csv")
    resume()
    fill("round-1.csv", answer=lambda row: "" if row == asked[0] else "emu")
    project, progress = resume()
    assert project.labels.answers[asked[0]] == NAMES[asked[0] % 3]
    assert {project.labels.answers[row] for row in asked[1:]} == {"emu"}
    assert any("1 answers that were read before are empty now" in note for note in progress.notes)
    assert any("answers were changed" in note for note in progress.notes)


def test_a_deleted_round_loses_no_answer():
    begin()
    asked = fill("round-1.csv", keep=lambda place: place < 4)
    resume()
    Path("rows.labels/round-1.csv").unlink()
    project, progress = resume()
    assert len(project.labels.answers) == 4
    assert any("was missing" in note for note in progress.notes)
    text = Path("rows.labels/round-1.csv").read_text(encoding="utf-8-sig")
    assert f"{asked[0]},{NAMES[asked[0] % 3]}" in text


def test_copies_of_a_round_are_the_answers_of_several_people():
    begin()
    asked = fill("round-1.csv")
    content = Path("rows.labels/round-1.csv").read_bytes()
    for name in ("ann", "ben"):
        Path(f"rows.labels/round-1.{name}.csv").write_bytes(content)
    Path("rows.labels/round-1.csv").unlink()
    fill("round-1.ben.csv", answer=lambda row: "emu" if row == asked[0] else NAMES[row % 3])
    project, _ = resume()
    assert project.labels.said(asked[1]) == {"ann": NAMES[asked[1] % 3], "ben": NAMES[asked[1] % 3]}
    assert project.labels.disputed() == ([asked[0]] if asked[0] % 3 != 2 else [])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("89,dog", "row 89 was not asked for"),
        ("1000,dog", "row 1000 was not asked for"),
        ("-1,dog", "row -1 was not asked for"),
        (",dog", "must hold the number of the row, got ''"),
        ("two,dog", "must hold the number of the row, got 'two'"),
        ("1.5,dog", "must hold the number of the row, got '1.5'"),
    ],
)
def test_answers_about_other_rows_are_told_and_the_others_are_used(line, message):
    begin()
    fill("round-1.csv")
    with Path("rows.labels/round-1.csv").open("a") as file:
        file.write(f"{line}\r\n")
    project, progress = resume()
    assert len(project.labels.answers) == 6
    (problem,) = progress.problems
    assert message in problem
    assert "round-1.csv, line 8" in problem


def test_two_answers_of_one_person_about_one_row_are_told():
    begin()
    asked = fill("round-1.csv")
    with Path("rows.labels/round-1.csv").open("a") as file:
        file.write(f"{asked[0]},another\r\n{asked[1]},{NAMES[asked[1] % 3]}\r\n")
    project, progress = resume()
    assert f"row {asked[0]} has two answers" in progress.problems[0]
    assert len(progress.problems) == 1
    assert set(project.labels.answers) == set(asked[1:])


def test_reordered_and_empty_lines_are_no_problem():
    begin()
    asked = fill("round-1.csv")
    path = Path("rows.labels/round-1.csv")
    head, *lines = path.read_text(encoding="utf-8-sig").splitlines()
    path.write_text("\n".join([",,", head, "", *reversed(lines), ",", "x,dog"]))
    project, progress = resume()
    assert project.labels.answers == {row: NAMES[row % 3] for row in asked}
    (problem,) = progress.problems
    assert problem.startswith("round-1.csv, line 11: ")


def test_a_changed_input_is_refused():
    begin()
    np.savez("rows.npz", features=np.random.default_rng(1).normal(size=(91, 5)))
    with pytest.raises(ValueError, match=r"has changed \(90 rows, now 91\)"):
        resume()


def test_check_rows_have_a_file_of_their_own_and_measure():
    project = Project(Path("rows.labels"), LabelSettings(("rows.npz",), size=6))
    names = [path.name for path in project.run(Display(), check=25).written]
    assert sorted(names) == ["check-1.csv", "round-1.csv"]
    fill("check-1.csv")
    fill("round-1.csv")
    project, progress = resume(check=30)
    assert project.labels.accuracy.rows == 25
    assert not project.labels.accuracy.biased
    assert progress.open["check-2.csv"] == (5, 5)


def test_labels_that_are_in_the_input_count():
    features = np.load("rows.npz")["features"]
    known = np.array([NAMES[row % 3] if row < 12 else "" for row in range(90)])
    np.savez("rows.npz", features=features, kind=known)
    begin(labels="kind", features=("features",))
    project, _ = resume()
    assert project.labels.answers == {row: NAMES[row % 3] for row in range(12)}


def test_rows_that_are_not_finite_are_refused_or_left_out():
    features = np.load("rows.npz")["features"]
    features[[0, 40]] = np.nan
    np.savez("rows.npz", features=features)
    with pytest.raises(ValueError, match="row 0"):
        begin()
    project = Project(Path("other.labels"), LabelSettings(("rows.npz",), size=88, skip_nan=True))
    project.run(Display())
    assert sorted(project.folder.rounds[0].rows) == [row for row in range(90) if row not in (0, 40)]


def test_when_all_rows_have_answers_there_is_no_next_round():
    Project(Path("rows.labels"), LabelSettings(("rows.npz",), size=90)).run(Display())
    fill("round-1.csv")
    _, progress = resume()
    assert progress.written == []
    assert "all 90 rows have an answer" in progress.notes[0]


def test_the_export_of_a_tool_is_read_from_anywhere():
    begin(format="label-studio")
    tasks = json.loads(Path("rows.labels/round-1.json").read_text())
    for task in tasks:
        choice = {"type": "choices", "value": {"choices": [NAMES[task["data"]["row"] % 3]]}}
        task["annotations"] = [{"completed_by": 1, "result": [choice]}]
    Path("export.json").write_text(json.dumps(tasks))
    project, progress = resume(answers=Path("export.json"))
    assert progress.answered == 6
    assert progress.problems == []
    assert len(project.labels.answers) == 6
    Path("export.json").unlink()
    assert len(resume()[0].labels.answers) == 6


def test_a_table_of_labels_is_kept_if_a_person_changed_it():
    begin()
    fill("round-1.csv")
    resume()
    path = Path("rows.labels/labels.csv")
    assert path.read_text(encoding="utf-8-sig").count("\n") == 7
    path.write_text("mine")
    fill("round-2.csv")
    resume()
    assert Path("rows.labels/labels.before-1.csv").read_text() == "mine"
    assert path.read_text(encoding="utf-8-sig").count("\n") == 13


def test_a_full_disk_loses_nothing(monkeypatch):
    begin()
    fill("round-1.csv")
    before = state()

    sync = os.fsync

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(OSError, match="the disk is full"):
        resume()
    monkeypatch.setattr(storage.os, "fsync", sync)
    assert state() == before
    assert resume()[1].answered == 6


@pytest.mark.parametrize("killed_after", ["rounds.jsonl", "answers.jsonl", "project.json", "input.json"])
def test_a_kill_between_two_files_loses_nothing(killed_after):
    """The process ends at once after it has written a file; the same command then does what was left."""
    code = f"""
import os, pathlib, sys
from smdl.common import storage
from smdl.cli.commands import main
replace = os.replace
def kill(part, path):
    replace(part, path)
    if pathlib.Path(path).name == {killed_after!r}:
        os._exit(9)
storage.os.replace = kill
main(sys.argv[1:])
"""
    first = ["label", "rows.npz", "--size", "6", "--quiet"]
    if killed_after == "answers.jsonl":
        assert main(first) == 0
        fill("round-1.csv")
        first = ["label", "rows.labels", "--quiet"]
    ended = subprocess.run([sys.executable, "-c", code, *first], capture_output=True, text=True)
    assert ended.returncode == 9, ended.stderr
    project, progress = resume()
    if killed_after == "answers.jsonl":
        assert len(project.labels.answers) == 6
        assert Path("rows.labels/round-2.csv").exists()
    else:
        assert progress.open == {"round-1.csv": (6, 6)}
        assert Path("rows.labels/round-1.csv").exists()


def test_two_processes_do_not_work_in_one_project():
    begin()
    ready, done = threading.Event(), threading.Event()

    def hold():
        with locked(Path("rows.labels")):
            ready.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait(10)
    try:
        with pytest.raises(ValueError, match="another process is at work"):
            resume()
    finally:
        done.set()
        thread.join()


def test_a_file_that_may_not_be_read_is_named(monkeypatch):
    begin()
    fill("round-1.csv")
    path = Path("rows.labels/round-1.csv")
    read = Path.read_bytes

    def refused(self):
        if self.name == path.name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(ValueError, match=r"round-1\.csv cannot be read: Permission denied"):
        resume()


def test_a_read_only_round_is_read():
    begin()
    fill("round-1.csv")
    Path("rows.labels/round-1.csv").chmod(0o444)
    assert resume()[1].answered == 6


def test_an_existing_folder_of_something_else_is_refused():
    Path("rows.labels").mkdir()
    Path("rows.labels/thesis.tex").write_text("x")
    with pytest.raises(ValueError, match="is no project of smdl label"):
        begin()


def test_the_command_says_what_to_fill_in_and_what_it_is_worth(capsys):
    assert main(["label", "rows.npz", "--size", "6", "--check", "20", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "to fill in: rows.labels/round-1.csv, 6 of 6 rows" in out
    assert "A forecast needs 20 answered check rows: 0 of 20 have an answer." in out
    fill("round-1.csv")
    fill("check-1.csv")
    assert main(["label", "rows.labels", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "26 labels of 3 classes" in out
    assert "20 rows)" in out
    assert "A forecast needs more labels of chosen rows than the present 6: fill in a round." in out
    assert "round-2.csv" in out
    assert Path("rows.labels/report.html").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("label rows.npz --text body", "--text body needs features: give --model to embed the texts, or --features"),
        ("label rows.npz --model m", "--model embeds texts: add --text"),
        ("label rows.npz --text a --model m --features b", "--features and --model both make features"),
        ("label rows.npz --format excel", "unknown format 'excel'"),
        ("label rows.npz --size 0", "expected a whole number ≥ 1"),
        ("label nothing.csv", "nothing.csv"),
        ("label simulate rows.npz", "needs --labels"),
        ("label simulate", "needs a file"),
        ("label simulate rows.npz --labels kind --check 5", "leave out check"),
        ("label rows.npz --seed -1", "seed"),
    ],
)
def test_bad_commands_are_refused_before_anything_is_written(command, message, capsys):
    assert main(command.split()) == 2
    assert message in capsys.readouterr().err
    assert not [path for path in Path().glob("*.labels/*") if path.name not in (".lock",)]


def test_a_project_keeps_its_settings(capsys):
    main(["label", "rows.npz", "--quiet"])
    assert main(["label", "rows.labels", "--size", "5"]) == 2
    assert "keeps its settings: leave out size" in capsys.readouterr().err
