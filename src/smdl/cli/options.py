"""The commands: each one's own options, and which fields of TrainConfig it takes."""

import argparse
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
    names = value if isinstance(value, list) else [name.strip() for name in value.split(",") if name.strip()]
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


_MAIN = ("--config", "--data.name", "--data.root", "--model.name", "--epochs", "--batch_size", "--optimizer.lr")
OPEN = ("objective", "options", "candidates")  # the method knows the names that may follow
_METHOD = ("method", *OPEN)
_JOBS = {"type": _whole_or_auto, "default": "auto", "help": "parallel runs; auto: one per core"}
_QUIET = {"action": "store_true", "help": "show only the result"}


def _out(default: str) -> dict[str, Any]:
    return {"type": Path, "help": f"folder (default: runs/{default})"}


COMMANDS = {
    "train": Command(
        "smdl train [--method NAME] [--config NAME] [options] | smdl train --resume DIR",
        (
            "smdl train --config digits --method loss --options.pressure 50",
            "smdl train --config cifar10 --data.root DIR --epochs 20 --optimizer.lr 0.05",
            "smdl train --resume runs/digits-loss-0",
        ),
        {
            "--out": _out("DATA-METHOD-SEED"),
            "--resume": {"type": Path, "help": "folder of an interrupted run to resume"},
            "--tracker": {"type": str, "help": "where numbers go: tensorboard, or package.module:Class"},
            "--quiet": _QUIET,
        },
        main=("--method", *_MAIN, "--seed"),
    ),
    "compare": Command(
        "smdl compare [--methods A,B,...] [--regimes A,B,...] [--seeds N|auto | --minutes M] [--config NAME] [options]",
        (
            "smdl compare --config digits --regimes clean,long-tail,noisy --methods uniform,balanced,recommended",
            "smdl compare --config cifar10 --methods uniform,recommended,my_package.my_module:method --minutes 30",
        ),
        {
            "--methods": {
                "type": _names,
                "default": "uniform,balanced,recommended",
                "help": "names or package.module:name; baseline: uniform, else the first; NAME@0.7: 0.7 of its time",
            },
            "--regimes": {
                "type": _names,
                "help": f"{', '.join(list(REGIMES)[:5])}, …; long-tail=50",
            },
            "--seeds": {"type": _whole_or_auto, "default": 5, "help": "runs per method; auto: 5, 10 or 20, as needed"},
            "--minutes": {"type": float, "help": "train as many seeds and steps as fit"},
            "--protocols": {"type": _names, "default": "steps,time", "help": "equal steps, equal time"},
            "--tune_lr": {"action": "store_true", "help": "first tune the learning rate of each method: ½, 1 or 2 ×"},
            "--jobs": _JOBS,
            "--out": _out("compare-DATA"),
            "--quiet": _QUIET,
        },
        main=_MAIN,
        refused={**dict.fromkeys(_METHOD, "use --methods"), "seed": "use --seeds"},
    ),
    "preview": Command(
        "smdl preview [--methods A,B,...] [--config NAME] [options]",
        ("smdl preview --config digits", "smdl preview --config cifar10 --methods uniform,recommended,paper"),
        {
            "--methods": {"type": _names, "help": "by default all that train no second model"},
            "--seconds": {"type": float, "default": 20.0, "help": "time for the measurement"},
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
            "--values": {"type": _names, "help": "values, separated by commas"},
            "--seeds": {"type": _whole, "default": 3, "help": "runs per value"},
            "--jobs": _JOBS,
            "--out": _out("ablate-SWEEP-DATA"),
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
            "--seeds": {"type": _whole, "help": "runs per method (default: 2, 3 or 5, by scale)"},
            "--jobs": _JOBS,
            "--out": _out("reproduce-SCALE"),
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
            "inputs": {
                "nargs": "+",
                "metavar": "FILE",
                "help": "files, patterns or folders: .npy .npz .safetensors .parquet .csv .jsonl",
            },
            "--size": {"type": _sizes, "help": "how many rows to choose; or several sizes: 100,300,1000"},
            "--fraction": {"type": float, "help": "share of the rows to choose, instead of --size"},
            "--objective": {
                "type": str | dict[str, Any],
                "default": "facility_location",
                "help": "preset or term; or --objective.TERM 1",
            },
            "--out": {
                "type": Path,
                "default": Path("chosen.csv"),
                "help": ".parquet, .csv, .jsonl, .json, or .npy (row numbers)",
            },
            "--features": {"type": _names, "help": "columns; by default the only matrix, or all numbers"},
            "--text": {"type": str, "help": "column of text, instead of --features: its embeddings are the features"},
            "--model": {"type": str, "help": "sentence-embedding model for --text: a folder, or a name in the cache"},
            "--labels": {"type": str, "help": "column, or a file with one row per row; so for the next six"},
            "--probabilities": {"type": str, "help": "columns of a classifier's probabilities"},
            "--groups": {"type": str, "help": "column of groups"},
            "--costs": {"type": str, "help": "column of costs; with --budget instead of --size"},
            "--ids": {"type": str, "help": "column to copy into the output"},
            "--utility": {"type": str, "help": "column: how good a row is to choose; with --objective.utility WEIGHT"},
            "--importance": {"type": str, "help": "column: how much a row counts as one to be represented"},
            "--per_group": {"type": _whole, "help": "most rows to choose per group"},
            "--shares": {"type": str, "help": "of the groups: uniform, input, or a file with group and share"},
            "--at_least": {"type": _whole, "help": "with --shares: least rows to choose per group"},
            "--budget": {"type": float, "help": "most that the chosen rows may cost together"},
            "--initial": {"type": str, "help": "file of rows that are chosen already: the others complement them"},
            "--query": {"type": str, "help": "file of rows that the choice is to be about"},
            "--away_from": {"type": str, "help": "file of rows that are there already: the choice adds to them"},
            "--exclude": {"type": str, "help": "file of rows that may not be chosen: an output, or row numbers"},
            "--dedup": {"type": float, "help": "first leave out near-copies: cosine similarity of 0.95, or another"},
            "--partitions": {
                "type": _whole,
                "help": "random parts to choose from first; by default by the number of rows",
            },
            "--seed": {"type": int, "default": 0, "help": "same seed, same rows"},
            "--engine": {"type": str, "default": "local", "help": "local, or ray"},
            "--threads": {"type": _whole, "help": "by default one per core"},
            "--skip_nan": {
                "action": "store_true",
                "help": "leave out rows with numbers that are not finite, or no text",
            },
            "--shuffled": {"action": "store_true", "help": "rows are in random order: parts are ranges, read once"},
            "--spreadsheet_safe": {
                "action": "store_true",
                "help": "mark texts in a .csv that look like formulas",
            },
            "--force": {"action": "store_true", "help": "replace an output that was changed; it is kept beside"},
            "--explain": {"action": "store_true", "help": "print the plan and its costs; choose nothing"},
            "--quiet": _QUIET,
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
            "inputs": {
                "nargs": "+",
                "metavar": "FILE",
                "help": "files as smdl select takes them, a folder of images, or a project to continue",
            },
            "--size": {"type": _whole, "default": 50, "help": "rows per round"},
            "--check": {"type": _whole, "help": "rows drawn at random in all, to measure the accuracy by"},
            "--more": {"action": "store_true", "help": "write the next round although the last one is not complete"},
            "--answers": {"type": Path, "help": "file with answers, such as the export of an annotation tool"},
            "--format": {
                "type": str,
                "default": "csv",
                "help": "csv, jsonl, parquet, label-studio, argilla, prodigy, doccano",
            },
            "--features": {"type": _names, "help": "columns, or a file; by default the only matrix, or all numbers"},
            "--text": {"type": str, "help": "column of text to show; with --model its embeddings are the features"},
            "--model": {
                "type": str,
                "help": "for --text: a folder or a name in the cache; for images: a function, package.module:function",
            },
            "--dedup": {"type": float, "help": "first leave out near-copies: cosine similarity of 0.95, or another"},
            "--labels": {"type": str, "help": "column of labels that are there already; for simulate: of all rows"},
            "--ids": {"type": str, "help": "column to copy into the rounds"},
            "--methods": {"type": _names, "help": "simulate: random,labels,facility_location,margin,entropy,k_center"},
            "--seeds": {"type": _whole, "default": 5, "help": "simulate: draws of the rows"},
            "--rounds": {"type": _whole, "default": 6, "help": "simulate: rounds"},
            "--seed": {"type": int, "default": 0, "help": "same seed and answers, same rows"},
            "--skip_nan": {
                "action": "store_true",
                "help": "leave out rows with numbers that are not finite, or no text",
            },
            "--out": {"type": Path, "help": "folder (default: FILE.labels or FILE.simulation beside the file)"},
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
            "inputs": {
                "nargs": "+",
                "metavar": "FILE",
                "help": "files as smdl select takes them, or a folder of images",
            },
            "--similarity": {"type": float, "default": 0.95, "help": "cosine similarity from which on a row is a copy"},
            "--out": {"type": Path, "default": Path("kept.csv"), "help": ".parquet, .csv, .jsonl, .json, or .npy"},
            "--keep": {"type": str, "default": "central", "help": "row of a group to keep: central, or first"},
            "--keep_by": {"type": str, "help": "column of numbers: keep the row with the highest one"},
            "--against": {
                "nargs": "+",
                "action": "extend",
                "metavar": "F",
                "help": "drop copies of their rows: test sets, earlier outputs",
            },
            "--features": {"type": _names, "help": "columns; by default the only matrix, or all numbers"},
            "--text": {"type": str, "help": "column of text, instead of --features: its embeddings are the features"},
            "--model": {
                "type": str,
                "help": "for --text: a folder or a name in the cache; for images: a function",
            },
            "--ids": {"type": str, "help": "column to copy into the output"},
            "--seed": {"type": int, "default": 0, "help": "of the random rows that the search is measured with"},
            "--engine": {"type": str, "default": "local", "help": "local, or ray"},
            "--threads": {"type": _whole, "help": "by default one per core"},
            "--skip_nan": {"action": "store_true", "help": "leave out rows without a direction, or without text"},
            "--spreadsheet_safe": {"action": "store_true", "help": "mark texts in a .csv that look like formulas"},
            "--force": {"action": "store_true", "help": "replace an output that was changed; it is kept beside"},
            "--quiet": _QUIET,
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
            "inputs": {
                "nargs": "+",
                "metavar": "FILE",
                "help": "files as smdl select takes them, or a folder of images",
            },
            "--out": {"type": Path, "default": Path("scores.csv"), "help": ".parquet, .csv, .jsonl or .json"},
            "--neighbours": {"type": _whole, "default": 16, "help": "nearest others that a row is compared with"},
            "--similarity": {"type": float, "default": 0.95, "help": "cosine similarity from which on a row is a copy"},
            "--features": {"type": _names, "help": "columns; by default the only matrix, or all numbers"},
            "--text": {"type": str, "help": "column of text, instead of --features: its embeddings are the features"},
            "--model": {
                "type": str,
                "help": "for --text: a folder or a name in the cache; for images: a function",
            },
            "--ids": {"type": str, "help": "column to copy into the output"},
            "--threads": {"type": _whole, "help": "by default one per core"},
            "--skip_nan": {"action": "store_true", "help": "leave out rows without a direction, or without text"},
            "--spreadsheet_safe": {"action": "store_true", "help": "mark texts in a .csv that look like formulas"},
            "--force": {"action": "store_true", "help": "replace an output that was changed; it is kept beside"},
            "--quiet": _QUIET,
        },
        needs="select",
    ),
    "report": Command(
        "smdl report [--markdown] DIR [DIR ...]",
        ("smdl report runs/compare-digits", "smdl report --markdown runs/reproduce-smoke/main-digits"),
        {
            "folders": {"nargs": "+", "metavar": "DIR", "help": "folder of a run, an experiment or smdl reproduce"},
            "--markdown": {"action": "store_true", "help": "print the tables of an experiment as Markdown instead"},
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
