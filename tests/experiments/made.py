"""An experiment in files, made by hand: what training would leave, without training."""

import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import yaml

from smdl.experiments.compare import Experiment, Plan
from smdl.experiments.runner import folder_of
from smdl.training.config import DataConfig, ModelConfig, TrainConfig, to_dict
from smdl.training.files import write_json, write_lines

#: Trained in a moment.
BASE = TrainConfig(
    data=DataConfig(train_size=80, test_size=60),
    model=ModelConfig("mlp", width=0.25),
    batch_size=20,
    epochs=2,
    train_evaluation=40,
    threads=1,
)
SCRIPT = "<script>alert(1)</script>"
#: A class of that name must stay a name, in text and in attributes.
CLASSES = ['"><img src=x onerror=alert(2)>', "ship & boat", "$\\frac{1}{0}$"]
ARMS = {
    "uniform": {"strategy": "uniform"},
    SCRIPT: {"strategy": "loss"},
    "recommended": {"strategy": "smdl", "objective": {"preset": "recommended"}},
}
#: Seconds a step of the arms, in turn.
SECONDS = (0.010, 0.011, 0.020)
SAMPLES, PER_EPOCH = 60, 10


def experiment(folder, arms=None, seeds=3, timed=True, **plan):
    """Plan, calibration and finished runs. Returns the Experiment."""
    folder.mkdir(parents=True, exist_ok=True)
    if not timed:
        plan |= {"protocols": ["steps"], "timed": False}
    base = to_dict(TrainConfig(batch_size=6, epochs=4))
    made = Experiment(folder, Plan(**({"title": "made up", "arms": arms or ARMS, "base": base, "seeds": seeds} | plan)))
    made.write_plan()
    made.calibration = {
        arm: cost(SECONDS[place % 3]) if timed else {"steps_per_epoch": PER_EPOCH, "samples": SAMPLES}
        for place, arm in enumerate(made.plan.arms)
    }
    write_json(folder / "calibration.json", made.calibration)
    for place, arm in enumerate(made.plan.arms):
        for protocol in made.plan.protocols:
            for config in made.configs(arm, protocol):
                run(folder_of(made.store, config), config, gain=0.02 * place)
    return made


def cost(seconds):
    """What the calibration says of an arm; all beyond the baseline is scoring and selection."""
    more = seconds - 0.010
    return {
        "seconds_per_step": seconds,
        "ratio": seconds / 0.010,
        "ratios": [0.9 * seconds / 0.010, seconds / 0.010, 1.2 * seconds / 0.010],
        "parts": {"data": 0.001, "scoring": 0.8 * more, "selection": 0.2 * more, "training": 0.009},
        "forwards_per_step": 18.0 if more else 0.0,
        "evaluation_seconds": 0.1,
        "steps_per_epoch": PER_EPOCH,
        "samples": SAMPLES,
        "threads": 1,
    }


def run(folder, config, gain=0.0):
    """A finished run: config, metrics, summary, counts and portrait."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(config.seed)
    (folder / "config.yaml").write_text(yaml.safe_dump(to_dict(config)))
    ends = [*range(PER_EPOCH, config.steps or 40, PER_EPOCH), config.steps or 40]
    records = [record(epoch, steps, rng.uniform(0, 0.02) - gain, config.strategy) for epoch, steps in enumerate(ends)]
    write_lines(folder / "metrics.jsonl", records)
    environment = {
        "smdl": "0.1.0",
        "commit": "abc123-dirty",
        "packages": {"torch": "2.0"},
        "command": "smdl compare <x>",
    }
    write_json(folder / "summary.json", {"classes": CLASSES, "environment": environment, "steps": ends[-1]})
    counts = rng.integers(0, 6, SAMPLES).astype(np.int32)
    np.save(folder / "counts.npy", counts)
    np.savez_compressed(folder / "usage_snapshot.npz", **portrait(counts, rng))


def record(epoch, steps, offset, strategy):
    """A line of metrics.jsonl."""
    error = 0.5 / (1 + epoch) + 0.05 + offset
    terms = {"facility_location": 0.9 + 0.01 * epoch, "redundancy": 0.2} if strategy == "smdl" else None
    return {
        "epoch": epoch,
        "steps": steps,
        "train_loss": 2 * error,
        "train_error": 0.8 * error,
        "test_loss": 3 * error,
        "test_error": error,
        "class_balance": 0.9 - 0.01 * epoch,
        "terms": terms,
        "seconds": {"data": 0.01, "scoring": 0.02, "selection": 0.01, "training": 0.06, "evaluation": 0.5},
    }


def portrait(counts, rng, channels=3):
    """What training.usage_snapshot would write."""
    labels, order = np.arange(len(counts)) % len(CLASSES), np.argsort(-counts)
    arrays = {"map": rng.normal(size=(len(counts), 2)).astype(np.float32), "map_labels": labels, "map_counts": counts}
    for kind, rows in (("most", order[:24]), ("least", order[::-1][:24])):
        images = rng.integers(0, 256, (len(rows), channels, 8, 8)).astype(np.uint8)
        arrays |= {f"{kind}_images": images, f"{kind}_labels": labels[rows], f"{kind}_counts": counts[rows]}
    return arrays


class Page(HTMLParser):
    """What a test asks of a page: its tags, its text, and the numbers of its tables."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.numbers, self.shown = [], [], {}, {}
        self._row = self._key = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag == "tr":
            self._row = (attributes.get("data-protocol"), attributes.get("data-arm"))
        if "data-key" in attributes:
            self._key = (*(self._row or ()), attributes["data-key"])
            self.numbers[self._key] = attributes["data-value"]

    def handle_endtag(self, tag):
        if tag == "span":
            self._key = None

    def handle_data(self, data):
        self.words.append(data)
        if self._key is not None:
            self.shown[self._key] = data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self):
        return " ".join(self.words)


def numbers_of(results):
    """The numbers a page's tables must show, from results.json: (protocol, arm, key) -> value."""
    found = {}
    for row in results["rows"]:
        for name, value in flat(row).items():
            found[row["protocol"], row["arm"], name] = value
    for test in results["tests"]:
        at = (test["protocol"], test["arm"])
        found[*at, "difference.mean"], found[*at, "difference.half"] = test["difference"], test["half"]
        found[*at, "p_holm"] = test["p_holm"]
    return found


def flat(values, path=""):
    """{"a": {"b": 1}} -> {"a.b": 1}."""
    found = {}
    for name, value in values.items():
        found |= flat(value, f"{path}{name}.") if isinstance(value, dict) else {f"{path}{name}": value}
    return found


def same_numbers(page, results):
    """Assert that every number of the tables is that of results.json: to the last digit in the cell's data, rounded in
    what a reader sees. Returns how many there are."""
    expected = numbers_of(results)
    for key, exact in page.numbers.items():
        value = expected.get(key)
        if isinstance(value, str):
            assert exact == page.shown[key] == value, key
            continue
        assert (json.loads(exact) if exact else None) == value, key
        assert reads_as(page.shown[key], value), (key, page.shown[key], value)
    return len(page.numbers)


def reads_as(shown, value):
    """Whether a reader would take the text for that number, rounded."""
    if value is None or shown == "< 0.001":
        return shown == "–" if value is None else value < 0.001
    text = shown.replace("−", "-").replace("± ", "").replace(",", "")
    share = text.endswith(" %")
    decimals = len(text.removesuffix(" %").partition(".")[2])
    return abs(float(text.removesuffix(" %")) - (100 * value if share else value)) <= 0.5 * 10**-decimals + 1e-9


def results_of(folder: Path):
    return json.loads((folder / "results.json").read_text())
