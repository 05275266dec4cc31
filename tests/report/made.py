"""An experiment in files, written here line by line: what training would leave, without training and without smdl."""

import json
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import yaml

SCRIPT = "<script>alert(1)</script>"
#: A class of that name must stay a name, in text and in attributes.
CLASSES = ['"><img src=x onerror=alert(2)>', "ship & boat", "$\\frac{1}{0}$"]
ARMS = {"uniform": {"method": "uniform"}, SCRIPT: {"method": "loss"}, "recommended": {"method": "recommended"}}
#: Seconds per step of the arms in turn, and how many such steps fit into 40 steps of the first.
SECONDS = (0.010, 0.011, 0.020)
EQUAL_TIME = (40, 36, 20)
SAMPLES, PER_EPOCH, STEPS = 60, 10, 40
CONFIG = {"data": {"name": "digits"}, "method": "recommended", "batch_size": 6, "epochs": 4, "steps": None, "seed": 0}


@dataclass
class Made:
    """The folder of an experiment and its plan."""

    folder: Path
    plan: dict

    def run(self, arm, protocol, seed):
        """The folder of a run."""
        found = (
            run for run in self.plan["runs"] if (run["arm"], run["protocol"], run["seed"]) == (arm, protocol, seed)
        )
        return self.folder / next(found)["folder"]


def experiment(folder, arms=None, seeds=3, timed=True, **changes):
    """Write plan, calibration and finished runs."""
    folder.mkdir(parents=True, exist_ok=True)
    arms = arms or ARMS
    plan = {
        "title": "made up",
        "base": CONFIG,
        "arms": arms,
        "baseline": "uniform",
        "against": {},
        "seeds": seeds,
        "protocols": ["steps", "time"] if timed else ["steps"],
        "timed": timed,
        "minutes": None,
        "decided": False,
        "caption": "",
        "paper": None,
        "command": "",
        **changes,
    }
    plan["runs"] = [
        planned(place, arm, protocol, seed)
        for place, arm in enumerate(arms)
        for protocol in plan["protocols"]
        for seed in range(seeds)
    ]
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan, sort_keys=False))
    lengths = {"steps_per_epoch": PER_EPOCH, "samples": SAMPLES}
    calibration = {arm: cost(SECONDS[place % 3]) if timed else lengths for place, arm in enumerate(arms)}
    (folder / "calibration.json").write_text(json.dumps(calibration))
    for place, arm in enumerate(arms):
        for run_ in plan["runs"]:
            if run_["arm"] == arm:
                method = arms[arm].get("method", "recommended")
                run(folder / run_["folder"], run_["seed"], run_["steps"], method, gain=0.02 * place)
    return Made(folder, plan)


def planned(place, arm, protocol, seed):
    """A line of the plan; a baseline's runs are the same under both protocols."""
    steps = EQUAL_TIME[place % 3] if protocol == "time" else STEPS
    return {
        "arm": arm,
        "protocol": protocol,
        "seed": seed,
        "steps": steps,
        "folder": f"trained/arm{place}-{steps}-{seed}",
    }


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
        "test_samples": 900,
        "classes": len(CLASSES),
        "largest_class": 1 / 3,
        "random_balance": 0.88,
        "threads": 1,
    }


def run(folder, seed, steps=STEPS, method="recommended", gain=0.0):
    """Write a finished run: config, metrics, summary, counts and snapshot."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([seed, round(1000 * gain)])
    (folder / "config.yaml").write_text(yaml.safe_dump({**CONFIG, "method": method, "steps": steps, "seed": seed}))
    ends = [*range(PER_EPOCH, steps, PER_EPOCH), steps]
    records = [record(epoch, end, rng.uniform(0, 0.02) - gain, method) for epoch, end in enumerate(ends)]
    write_lines(folder / "metrics.jsonl", records)
    environment = {
        "smdl": "0.1.0",
        "commit": "abc123-dirty",
        "packages": {"torch": "2.0"},
        "command": "smdl compare <x>",
    }
    write_json(folder / "summary.json", {"classes": CLASSES, "environment": environment, "steps": steps})
    even, uneven = rng.integers(3, 5, SAMPLES), rng.integers(0, 6, SAMPLES)
    counts = (even if method == "uniform" else uneven).astype(np.int32)
    np.save(folder / "counts.npy", counts)
    np.savez_compressed(folder / "usage_snapshot.npz", **snapshot(counts, rng))


def record(epoch, steps, offset, method):
    """A line of metrics.jsonl."""
    error = 0.5 / (1 + epoch) + 0.05 + offset
    terms = {"facility_location": 0.9 + 0.01 * epoch, "redundancy": 0.2} if method == "recommended" else None
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


def snapshot(counts, rng, channels=3):
    """The arrays of usage_snapshot.npz."""
    labels, order = np.arange(len(counts)) % len(CLASSES), np.argsort(-counts)
    arrays = {"map": rng.normal(size=(len(counts), 2)).astype(np.float32), "map_labels": labels, "map_counts": counts}
    for kind, rows in (("most", order[:24]), ("least", order[::-1][:24])):
        images = rng.integers(0, 256, (len(rows), channels, 8, 8)).astype(np.uint8)
        arrays |= {f"{kind}_images": images, f"{kind}_labels": labels[rows], f"{kind}_counts": counts[rows]}
    return arrays


def write_json(path, value):
    path.write_text(json.dumps(value))


def write_lines(path, records):
    path.write_text("".join(json.dumps(each) + "\n" for each in records))


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


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
        found |= {(*at, f"test.{name}"): value for name, value in flat(test).items()}
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


def results_of(folder):
    return json.loads((folder / "results.json").read_text())
