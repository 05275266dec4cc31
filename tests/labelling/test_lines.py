"""Lines of a round that a person sorted, exchanged or deleted: no answer goes to another row, and no row is lost."""

import csv
from pathlib import Path

import numpy as np
import pytest

from smdl.cli.commands import main
from smdl.common.progress import Display
from smdl.labelling.input_rows import LabelSettings
from smdl.labelling.project import Project

pytestmark = pytest.mark.usefixtures("rows")
PATH = Path("rows.labels")


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """A table of 60 rows with ids of 4 digits, in three clusters. The process works in its folder."""
    monkeypatch.chdir(tmp_path)
    features = 4 * np.eye(3, 4)[np.arange(60) % 3] + np.random.default_rng(0).normal(size=(60, 4))
    with Path("rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["key", "a", "b", "c", "d", "body"])
        writer.writerows([f"{row:04}", *each, f"text {row}"] for row, each in enumerate(features.tolist()))


def begin(**options):
    settings = {"features": ("a", "b", "c", "d"), "ids": "key", "size": 6, **options}
    return Project(PATH, LabelSettings(("rows.csv",), **settings)).run(Display())


def resume(**options):
    project = Project(PATH)
    return project, project.run(Display(), **options)


def edit(change, name="round-1.csv"):
    """Change the lines of a file, as lists of cells. Return those of before."""
    path = PATH / name
    with path.open(encoding="utf-8-sig", newline="") as file:
        head, *lines = csv.reader(file)
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows([head, *change([list(line) for line in lines])])
    return lines


def answered(lines):
    """Lines with the class of the row that their id names."""
    return [[row, key, f"class {int(float(key)) % 3}"] for row, key, _ in lines]


def turned(lines):
    """Lines whose ids were moved up by one, as a column that is sorted alone."""
    keys = [key for _, key, _ in lines]
    return [[row, key, said] for (row, _, said), key in zip(lines, keys[1:] + keys[:1], strict=True)]


def test_ids_that_were_sorted_alone_give_no_answer_to_another_row():
    begin()
    asked = edit(lambda lines: answered(turned(lines[:5]) + lines[5:]))
    project, progress = resume()
    (last, key, _) = asked[5]
    assert project.labels.answers == {int(last): f"class {int(key) % 3}"}
    (row, key, _), (_, other, _) = asked[:2]
    wrong = f"the id is not that of row {row}, '{key}', but '{other}', so its answer is not used"
    assert progress.problems[0] == f"round-1.csv, line 2: {wrong}: were columns sorted alone?"
    assert len(progress.problems) == 5


def test_a_wrong_id_is_told_before_there_is_an_answer():
    begin()
    edit(lambda lines: [[lines[0][0], lines[1][1], ""], *lines[1:]])
    (problem,) = resume()[1].problems
    assert problem.startswith("round-1.csv, line 2: the id is not that of row")


def test_ids_as_a_spreadsheet_saves_them_are_those_of_their_rows():
    begin()
    edit(answered)
    edit(
        lambda lines: (
            [[row, key.lstrip("0") or "0", said] for row, key, said in lines[:3]]
            + [[row, f"{int(key)}.0", said] for row, key, said in lines[3:]]
        )
    )
    project, progress = resume()
    assert progress.problems == []
    assert len(project.labels.answers) == 6


def test_rows_whose_lines_were_deleted_are_asked_for_again():
    """Nothing that was typed is lost, also if the lines come back, and the project can be finished."""
    begin()
    whole = answered(edit(lambda lines: answered(lines[:2]) + lines[5:]))
    typed = (PATH / "round-1.csv").read_bytes()
    project, progress = resume()
    assert len(project.labels.answers) == 2
    assert [path.name for path in progress.written] == ["round-2.csv"]
    assert progress.open == {"round-1.csv": (1, 3), "round-2.csv": (3, 3)}
    assert progress.notes == ["round-1.csv: 3 rows have no line any more; round-2.csv asks for them again"]
    assert (PATH / "round-1.csv").read_bytes() == typed
    assert resume()[1].written == []
    assert sorted(line[0] for line in edit(answered, "round-2.csv")) == sorted(line[0] for line in whole[2:5])
    edit(lambda _: whole)
    project, progress = resume()
    assert progress.problems == []
    assert project.labels.answers == {int(row): said for row, _, said in whole}
    assert [path.name for path in progress.written] == ["round-3.csv"]


def test_deleted_lines_of_json_are_asked_for_again():
    begin(format="jsonl")
    path = PATH / "round-1.jsonl"
    path.write_text("\n".join(path.read_text().splitlines()[:4]))
    assert resume()[1].open == {"round-1.jsonl": (4, 4), "round-2.jsonl": (2, 2)}


def test_deleted_check_rows_are_asked_for_again_as_check_rows():
    Project(PATH, LabelSettings(("rows.csv",), features=("a", "b", "c", "d"), ids="key", size=6)).run(
        Display(), check=10
    )
    edit(lambda lines: answered(lines[:7]), "check-1.csv")
    assert [path.name for path in resume()[1].written] == ["check-2.csv"]
    edit(answered, "check-2.csv")
    edit(answered)
    project, _ = resume()
    assert project.labels.accuracy is not None
    assert project.labels.accuracy.rows == 10


def test_two_answers_in_two_files_are_told_and_none_is_used():
    begin()
    (first, *_) = edit(lambda lines: lines[1:])
    resume()
    edit(lambda lines: [[*first[:2], "cat"], *lines])
    edit(lambda lines: [[*line[:2], "dog"] for line in lines], "round-2.csv")
    project, progress = resume()
    assert progress.problems == [f"round-2.csv, line 2: row {first[0]} has two answers, 'cat' (round-1.csv) and 'dog'"]
    assert project.labels.answers == {}


def test_an_answer_in_three_files_of_which_one_differs_is_not_used():
    begin()
    (first, *_) = edit(lambda lines: lines[1:])
    resume()
    (again,) = edit(lambda _: [], "round-2.csv")
    assert again == first
    assert [path.name for path in resume()[1].written] == ["round-3.csv"]
    for number, said in enumerate(("cat", "dog", "cat"), 1):
        edit(lambda _, said=said: [[*first[:2], said]], f"round-{number}.csv")
    project, progress = resume()
    assert len(progress.problems) == 1
    assert project.labels.answers == {}


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("name", ["fix.csv", "round-1.csv"])
def test_answers_given_by_name_correct_those_of_a_round(name, seen):
    """The round's file still says what it said, and does not undo the correction; a new answer there counts."""
    begin()
    asked = edit(lambda lines: [[*line[:2], "cat"] for line in lines])
    if seen:
        resume()
    Path(name).write_text(f"row,id,label\n{asked[0][0]},{asked[0][1]},dog\n")
    project, progress = resume(answers=Path(name))
    assert progress.problems == []
    assert progress.answered == (1 if seen else 6)
    corrected = {int(row): "dog" if row == asked[0][0] else "cat" for row, *_ in asked}
    assert project.labels.answers == corrected
    assert f"{name}: 1 answers were changed" in progress.notes
    project, progress = resume()
    assert progress.answered == 0
    assert project.labels.answers == corrected
    edit(lambda lines: [[*line[:2], "emu"] for line in lines])
    assert set(resume()[0].labels.answers.values()) == {"emu"}


def test_the_export_of_a_tool_may_lack_rows_without_an_answer():
    begin(format="prodigy")
    path = PATH / "round-1.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("".join(f'{line[:-1]}, "label": "cat", "answer": "accept"}}\n' for line in lines[:2]))
    project, progress = resume()
    assert len(project.labels.answers) == 2
    assert progress.notes == []
    assert progress.open == {"round-1.jsonl": (4, 6)}


def test_ids_of_a_tool_are_not_those_of_the_rows():
    begin()
    asked = edit(lambda lines: lines)
    Path("export.csv").write_text(
        "id,row,key,label,annotation_id\n"
        + "".join(f"{n},{row},{key},cat,{n}\n" for n, (row, key, _) in enumerate(asked, 1000))
    )
    project, progress = resume(answers=Path("export.csv"))
    assert progress.problems == []
    assert len(project.labels.answers) == 6


def test_the_command_ends_with_code_1_if_ids_were_sorted_alone(capsys):
    assert main(["label", "rows.csv", "--features", "a,b,c,d", "--ids", "key", "--size", "6", "--quiet"]) == 0
    edit(lambda lines: answered(turned(lines)))
    assert main(["label", "rows.labels", "--quiet"]) == 1
    assert "were columns sorted alone?" in capsys.readouterr().out
    assert not (PATH / "labels.csv").exists()
