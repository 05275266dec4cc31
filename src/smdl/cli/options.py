"""The commands: each one's own options, and which fields of TrainConfig it takes."""

import argparse
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smdl.experiments.regimes import REGIMES
from smdl.paper.sweeps import ABOUT, PAPER_ITEMS, SCALES


def _whole(value: Any) -> int:
    """Type of an option: a whole number ≥ 1. jsonargparse applies a type to its own results, too."""
    if not str(value).isdecimal() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number ≥ 1, got {value!r}")
    return int(value)


def _sizes(value: Any) -> tuple[int, ...]:
    """Type of an option: whole numbers ≥ 1, separated by commas."""
    return tuple(value) if isinstance(value, list | tuple) else tuple(map(_whole, str(value).split(",")))


def _whole_or_auto(value: Any) -> int | str:
    return value if value == "auto" else _whole(value)


def _names(value: Any) -> list[str]:
    """Type of an option: names separated by commas."""
    parts = value if isinstance(value, list) else re.split(r",(?![^\[]*\])", value)  # not within brackets
    names = [part.strip() for part in parts if part.strip()]
    if not names:
        raise argparse.ArgumentTypeError(f"expected names separated by commas, got {value!r}")
    return names


@dataclass(frozen=True)
class Command:
    """The options of one command.

    own       its own options, as `add_argument` of a parser takes them
    main      options of TrainConfig that --help shows; none if the command does not train
    refused   options of TrainConfig that it does not take, and what to do instead
    choices   the values of its argument, and what they mean
    needs     the extra that installs its packages
    """

    usage: str
    examples: tuple[str, ...]
    own: dict[str, dict[str, Any]]
    main: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    choices: dict[str, str] = field(default_factory=dict)
    needs: str | None = "train"


def _of(kind: Any, text: str, default: Any = None) -> dict[str, Any]:
    return {"type": kind, "default": default, "help": text}


def _flag(text: str) -> dict[str, Any]:
    return {"action": "store_true", "help": text}


_MAIN = ("--config", "--data.name", "--data.root", "--model.name", "--epochs", "--batch_size", "--optimizer.lr")
OPEN = ("objective", "options", "candidates")  # the method knows the names that may follow
_METHOD = ("method", *OPEN)
_JOBS = _of(_whole_or_auto, "parallel runs; auto: one per core", "auto")
_COMPARED = "names or package.module:name; baseline: uniform, else the first; NAME@0.7: 0.7 of its time"
_QUIET = _flag("show only the result")
_FILES = {"nargs": "+", "metavar": "FILE", "help": "files as smdl select takes them, or a folder of images"}
_ROWS = {
    "--features": _of(_names, "columns; by default the only matrix, or all numbers"),
    "--text": _of(str, "column of text, instead of --features: its embeddings are the features"),
    "--model": _of(str, "for --text: a folder or a name in the cache; images: module:function"),
    "--ids": _of(str, "column to copy into the output"),
}
_SIMILARITY = _of(float, "cosine similarity from which on a row is a copy", 0.95)
_DEDUP = _of(float, "first leave out near-copies: cosine similarity of 0.95, or another")
_ENGINE = _of(str, "local, or ray", "local")
_SKIP = _flag("leave out rows with numbers that are not finite, or no text")
_WRITING = {
    "--threads": _of(_whole, "by default one per core"),
    "--skip_nan": _flag("leave out rows without a direction, or without text"),
    "--spreadsheet_safe": _flag("mark texts in a .csv that look like formulas"),
    "--force": _flag("replace an output that was changed; it is kept beside"),
    "--quiet": _QUIET,
}

COMMANDS = {
    "train": Command(
        "smdl train [--method NAME] [--config NAME] [options] | smdl train --resume DIR",
        (
            "smdl train --config digits --method loss --options.pressure 50",
            "smdl train --config cifar10 --data.root DIR --epochs 20 --optimizer.lr 0.05",
            "smdl train --resume runs/digits-loss-0",
        ),
        {
            "--out": _of(Path, "folder (default: runs/DATA-METHOD-SEED)"),
            "--resume": _of(Path, "folder of an interrupted run to resume"),
            "--tracker": _of(str, "where numbers go: tensorboard, or package.module:Class"),
            "--quiet": _QUIET,
        },
        main=("--method", *_MAIN, "--seed"),
    ),
    "compare": Command(
        "smdl compare [--methods A,B,...] [--regimes A,B,...] [--seeds N|auto | --minutes M] [--config NAME] [options]",
        (
            "smdl compare --config digits --regimes clean,long-tail,noisy --methods uniform,balanced,recommended",
            "smdl compare --config cifar10 --methods 'uniform,loss[pressure=4],my_module:method' --minutes 30",
        ),
        {
            "--methods": _of(_names, _COMPARED, "uniform,balanced,recommended"),
            "--regimes": _of(_names, f"{', '.join(list(REGIMES)[:5])}, …; long-tail=50"),
            "--seeds": _of(_whole_or_auto, "runs per method; auto: 5, 10 or 20, as needed", 5),
            "--minutes": _of(float, "train as many seeds and steps as fit"),
            "--protocols": _of(_names, "equal steps, equal time", "steps,time"),
            "--tune_lr": _flag("first tune the learning rate of each method: ½, 1 or 2 ×"),
            "--jobs": _JOBS,
            "--out": _of(Path, "folder (default: runs/compare-DATA)"),
            "--quiet": _QUIET,
        },
        main=_MAIN,
        refused={**dict.fromkeys(_METHOD, "use --methods"), "seed": "use --seeds"},
    ),
    "preview": Command(
        "smdl preview [--methods A,B,...] [--config NAME] [options]",
        ("smdl preview --config digits", "smdl preview --config cifar10 --methods uniform,recommended,paper"),
        {
            "--methods": _of(_names, "by default all that train no second model"),
            "--seconds": _of(float, "time for the measurement", 20.0),
            "--quiet": _QUIET,
        },
        main=_MAIN,
        refused={**dict.fromkeys(_METHOD, "use --methods"), "seed": "it changes no cost"},
    ),
    "ablate": Command(
        "smdl ablate SWEEP [--values A,B,...] [--seeds N] [--config NAME] [options]",
        ("smdl ablate distance --config digits", "smdl ablate batch-size --values 16,64 --config digits"),
        {
            "sweep": {"metavar": "SWEEP", "choices": tuple(ABOUT), "help": "what to vary, see below"},
            "--values": _of(_names, "values, separated by commas"),
            "--seeds": _of(_whole, "runs per value", 3),
            "--jobs": _JOBS,
            "--out": _of(Path, "folder (default: runs/ablate-SWEEP-DATA)"),
            "--quiet": _QUIET,
        },
        main=_MAIN,
        refused={**dict.fromkeys(_METHOD, "the sweep sets it"), "seed": "use --seeds"},
        choices=ABOUT,
    ),
    "reproduce": Command(
        "smdl reproduce ITEM [--scale SCALE] [options]",
        ("smdl reproduce table-1", "smdl reproduce all --scale small --data.root DIR"),
        {
            "item": {"metavar": "ITEM", "choices": (*PAPER_ITEMS, "all"), "help": "table or figure, see below"},
            "--scale": {"choices": SCALES, "default": "smoke", "help": "a minute, half an hour, or days on a GPU"},
            "--seeds": _of(_whole, "runs per method (default: 2, 3 or 5, by scale)"),
            "--jobs": _JOBS,
            "--out": _of(Path, "folder (default: runs/reproduce-SCALE)"),
            "--data.root": {"dest": "root", "help": "folder of the data sets"},
            "--quiet": _QUIET,
        },
        choices={**PAPER_ITEMS, "all": "every item"},
    ),
    "select": Command(
        "smdl select FILE ... --size N [--objective NAME] [--out FILE] [options]",
        (
            "smdl select embeddings.npy --size 10000 --out chosen.parquet",
            "smdl select 's3://bucket/*.parquet' --fraction 0.05 --objective.redundancy 1 --engine ray --explain",
            "smdl select reviews.parquet --text body --model models/all-MiniLM-L6-v2 --size 1000",
        ),
        {
            "inputs": _FILES | {"help": "files, patterns or folders: .npy .npz .safetensors .parquet .csv .jsonl"},
            "--size": _of(_sizes, "how many rows to choose; or several sizes: 100,300,1000"),
            "--fraction": _of(float, "share of the rows to choose, instead of --size"),
            "--objective": _of(str | dict[str, Any], "preset or term; or --objective.TERM 1", "facility_location"),
            "--out": _of(Path, ".parquet, .csv, .jsonl, .json, or .npy (row numbers)", Path("chosen.csv")),
            **_ROWS,
            "--model": _of(str, "sentence-embedding model for --text: a folder, or a name in the cache"),
            "--labels": _of(str, "column, or a file with one row per row; so for --ids and the next five"),
            "--probabilities": _of(str, "columns of a classifier's probabilities"),
            "--groups": _of(str, "column of groups"),
            "--costs": _of(str, "column of costs; with --budget instead of --size"),
            "--utility": _of(str, "column: how good a row is to choose; with --objective.utility WEIGHT"),
            "--importance": _of(str, "column: how much a row counts as one to be represented"),
            "--per_group": _of(_whole, "most rows to choose per group"),
            "--shares": _of(str, "of the groups: uniform, input, or a file with group and share"),
            "--at_least": _of(_whole, "with --shares: least rows to choose per group"),
            "--budget": _of(float, "most that the chosen rows may cost together"),
            "--initial": _of(str, "file of rows that are chosen already: the others complement them"),
            "--query": _of(str, "file of rows that the choice is to be about"),
            "--away_from": _of(str, "file of rows that are there already: the choice adds to them"),
            "--exclude": _of(str, "file of rows that may not be chosen: an output, or row numbers"),
            "--dedup": _DEDUP,
            "--partitions": _of(_whole, "random parts to choose from first; by default by the number of rows"),
            "--seed": _of(int, "same seed, same rows", 0),
            "--engine": _ENGINE,
            "--shuffled": _flag("rows are in random order: parts are ranges, read once"),
            "--explain": _flag("print the plan and its costs; choose nothing"),
            **_WRITING,
            "--skip_nan": _SKIP,
        },
        needs="select",
    ),
    "label": Command(
        "smdl label FILE ... [options] | smdl label FOLDER [--check N] | smdl label simulate FILE --labels COLUMN",
        (
            "smdl label reviews.csv --text body --model models/all-MiniLM-L6-v2 --size 50 --check 50",
            "smdl label reviews.labels",
            "smdl label photos --model my_package.features:embed",
            "smdl label simulate reviews.csv --features embeddings.npy --labels category",
        ),
        {
            "inputs": _FILES
            | {"help": "files as smdl select takes them, a folder of images, or a project to continue"},
            "--size": _of(_whole, "rows per round", 50),
            "--check": _of(_whole, "rows drawn at random in all, to measure the accuracy by; a forecast needs 20"),
            "--more": _flag("write the next round although the last one is not complete"),
            "--answers": _of(Path, "file with answers, such as the export of an annotation tool"),
            "--format": _of(str, "csv, jsonl, parquet, label-studio, argilla, prodigy, doccano", "csv"),
            **_ROWS,
            "--features": _of(_names, "columns, or a file; by default the only matrix, or all numbers"),
            "--text": _of(str, "column of text to show; with --model its embeddings are the features"),
            "--dedup": _DEDUP,
            "--labels": _of(str, "column of labels that are there already; for simulate: of all rows"),
            "--ids": _of(str, "column to copy into the rounds"),
            "--methods": _of(_names, "simulate: random,labels,facility_location,margin,entropy,k_center"),
            "--seeds": _of(_whole, "simulate: draws of the rows", 5),
            "--rounds": _of(_whole, "simulate: rounds", 6),
            "--seed": _of(int, "same seed and answers, same rows", 0),
            "--skip_nan": _SKIP,
            "--out": _of(Path, "folder (default: FILE.labels or FILE.simulation beside the file)"),
            "--quiet": _QUIET,
        },
        needs="label",
    ),
    "dedup": Command(
        "smdl dedup FILE ... [--similarity 0.95] [--out FILE] [options]",
        (
            "smdl dedup embeddings.npy --similarity 0.95 --out kept.parquet",
            "smdl dedup reviews.parquet --text body --model models/all-MiniLM-L6-v2 --keep_by length",
            "smdl dedup train.npy --against test.npy --out clean.csv",
        ),
        {
            "inputs": _FILES,
            "--similarity": _SIMILARITY,
            "--out": _of(Path, ".parquet, .csv, .jsonl, .json, or .npy", Path("kept.csv")),
            "--keep": _of(str, "row of a group to keep: central, or first", "central"),
            "--keep_by": _of(str, "column of numbers: keep the row with the highest one"),
            "--against": _FILES
            | {"action": "extend", "metavar": "F", "help": "drop copies of their rows: test sets, earlier outputs"},
            **_ROWS,
            "--seed": _of(int, "of the random rows that the search is measured with", 0),
            "--engine": _ENGINE,
            **_WRITING,
        },
        needs="select",
    ),
    "score": Command(
        "smdl score FILE ... [--neighbours 16] [--out FILE] [options]",
        (
            "smdl score embeddings.npy --out scores.parquet",
            "smdl score reviews.parquet --text body --model models/all-MiniLM-L6-v2 --out scores.csv",
        ),
        {
            "inputs": _FILES,
            "--out": _of(Path, ".parquet, .csv, .jsonl or .json", Path("scores.csv")),
            "--neighbours": _of(_whole, "nearest others that a row is compared with", 16),
            "--similarity": _SIMILARITY,
            **_ROWS,
            **_WRITING,
        },
        needs="select",
    ),
    "report": Command(
        "smdl report [--markdown] DIR [DIR ...]",
        ("smdl report runs/compare-digits", "smdl report --markdown runs/reproduce-smoke/main-digits"),
        {
            "folders": {"nargs": "+", "metavar": "DIR", "help": "folder of a run, an experiment or smdl reproduce"},
            "--markdown": _flag("print the tables of an experiment as Markdown instead"),
        },
        needs=None,  # it depends on the folder
    ),
    "data": Command(
        "smdl data list [--root DIR] | smdl data get NAME [--root DIR]",
        ("smdl data list", "smdl data get cifar10 --root DIR"),
        {
            "action": {"metavar": "ACTION", "choices": ("list", "get"), "help": "list or get"},
            "name": {"nargs": "?", "metavar": "NAME", "help": "data set to download"},
            "--root": {"help": "folder of the data sets (default: the cache)"},
        },
        choices={"list": "list the data sets and their folders", "get": "download one; a broken download resumes"},
    ),
    "doctor": Command("smdl doctor", ("smdl doctor",), {}, needs=None),
}
