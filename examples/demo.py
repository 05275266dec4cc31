"""What smdl is for, in two minutes and one page: `make demo`.

    python examples/demo.py [--out runs/demo] [--seeds 10] [--draws 10]

First labelling: 20 digits chosen against 20 at random, each labelled and used to train a logistic regression. Then
training: the digits with 20 % wrong labels, which the loader finds and leaves out.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import smdl
from smdl.cli.commands import main as command
from smdl.common.storage import write_bytes, write_json
from smdl.labelling.simulation import draw, run_rounds
from smdl.labelling.simulation_job import summarise
from smdl.report.demo_page import labels_picture, render_demo

SIZE, ROUNDS, SHOWN = 10, 6, 20


def labelling(out: Path, draws: int) -> None:
    """Choose labels of the digits in rounds, and as many at random; write what the page shows."""
    started = time.perf_counter()
    pixels, classes = load_digits(return_X_y=True)
    pixels, classes = np.asarray(pixels, np.float32), np.asarray(classes)
    data = [draw(pixels, classes, seed) for seed in range(draws)]
    curves = {
        name: [run_rounds(each, name, seed, SIZE, ROUNDS) for seed, each in enumerate(data)]
        for name in ("random", "labels")
    }
    found = summarise(curves)
    rows = {
        "labels": smdl.Labels(pixels).next(SHOWN),
        "random": np.random.default_rng(0).permutation(len(pixels))[:SHOWN],
    }
    found |= {"draws": draws, "seconds": time.perf_counter() - started, "shown": SHOWN}
    found["images"] = {name: pixels[chosen].reshape(-1, 8, 8).astype(int).tolist() for name, chosen in rows.items()}
    found["seen"] = {name: len(set(classes[chosen].tolist())) for name, chosen in rows.items()}
    write_json(out / "labels.json", found, checksum=True)
    write_bytes(out / "labels.png", labels_picture(found))
    at = found["labels"].index(SHOWN)
    score = {row["method"]: f"{row['accuracy'][at]:.0f} %" for row in found["methods"]}
    print(f"{SHOWN} labels of the digits: {score['labels']} chosen, {score['random']} at random")
    print(f"{found['answer']} {found['seconds']:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--seeds", type=int, default=10, help="training runs per method")
    parser.add_argument("--draws", type=int, default=10, help="draws of the digits for the labels")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    labelling(options.out, options.draws)
    print(f"page so far: {render_demo(options.out)}", flush=True)
    training = ["compare", "--config", "digits", "--epochs", "12", "--regimes", "noisy", "--protocols", "time"]
    training += [
        "--methods",
        "uniform,recommended",
        "--seeds",
        str(options.seeds),
        "--out",
        str(options.out / "training"),
    ]
    code = command(training)
    print(f"page: {render_demo(options.out)}")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
