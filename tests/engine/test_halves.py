"""Large float16, bfloat16 and mapped features are read as they are: the same picks, and no copy."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import smdl
from smdl.engine import arithmetic
from smdl.engine.jit import compiled
from smdl.engine.pool import stored

OBJECTIVES = [
    {"redundancy": 1.0},
    {"redundancy": 1.0, "mean_closeness": 0.2, "distance": "cosine"},
    {"facility_location": 1.0},
    {"facility_location": 1.0, "sample": 50},
    {"facility_location": 1.0, "neighbours": 5},
    {"facility_location": 1.0, "space": "gradients"},
    {"redundancy": 0.5, "facility_location": 0.5, "distance": "correlation"},
]
#: The loops of the last two take many seconds to compile: one kind each.
CASES = [
    *[(kind, options) for kind in (torch.float16, torch.bfloat16) for options in OBJECTIVES],
    (torch.float16, {"feature_coverage": 1.0}),
    (torch.bfloat16, {"log_determinant": 1.0}),
]


@compiled
def every_value(x):
    out = np.empty(x.shape, np.float32)
    for i in range(x.shape[0]):
        for u in range(x.shape[1]):
            out[i, u] = arithmetic.value(x, i, u)
    return out


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_compiled_loops_read_every_half(kind):
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    halves = bits.view(kind)
    halves = halves[torch.isfinite(halves)][:, None].contiguous()
    read = torch.from_numpy(every_value(stored(halves)))
    assert torch.equal(read.view(torch.int32), halves.to(torch.float32).view(torch.int32))
    assert arithmetic.largest(stored(halves)) == float(halves.to(torch.float32).abs().max())
    for wrong in (float("nan"), float("-inf")):
        assert not np.isfinite(arithmetic.largest(stored(torch.tensor([[1.0, wrong]], dtype=kind))))


@pytest.mark.parametrize(("kind", "options"), CASES, ids=str)
def test_halves_give_the_picks_of_the_same_numbers_in_float32(monkeypatch, kind, options):
    rng = np.random.default_rng(1)
    features = torch.from_numpy(rng.random((150, 9), np.float32)).to(kind)
    others = rng.dirichlet(np.ones(3), 150), rng.integers(0, 3, 150)
    objective = smdl.Objective(**options)
    single = smdl.select(smdl.Pool(features.to(torch.float32), *others), objective, 12)
    monkeypatch.setattr("smdl.engine.pool.LARGE", 0)
    pool = smdl.Pool(features, *others)
    assert pool.features.dtype == kind
    assert pool.features.data_ptr() == features.data_ptr(), "no copy"
    chosen = smdl.select(pool, objective, 12)
    assert chosen.indices.tolist() == single.indices.tolist()
    np.testing.assert_allclose(chosen.gains, single.gains, rtol=1e-6)


def test_wrong_numbers_in_large_halves_are_named_by_their_place(monkeypatch):
    monkeypatch.setattr("smdl.engine.pool.LARGE", 0)
    features = np.zeros((9, 3), np.float16)
    features[7, 2] = np.nan
    with pytest.raises(ValueError, match=r"features must be finite, got nan at \(7, 2\)"):
        smdl.Pool(features)


MAPPED = """
import resource, sys
import numpy as np
import smdl

objectives = [smdl.Objective(redundancy=1.0), smdl.Objective(facility_location=1.0, sample=500)]
features = np.load(sys.argv[1], mmap_mode="r")
for objective in objectives:  # compile first what is called below: the compiler needs memory too
    smdl.select(features[:140000], objective, 2, optimizer="stochastic")
smdl.select(features[:140000], "facility_location", 2)
used = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_DATA, (used + (56 << 20), resource.RLIM_INFINITY))
for objective in objectives:
    print(len(smdl.select(features, objective, 20, optimizer="stochastic")))
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, resource.RLIM_INFINITY))
print(len(smdl.select(features, "facility_location", 1000)))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc and do not enforce RLIMIT_DATA")
def test_a_map_is_never_copied_whole(tmp_path: Path):
    """The map has 64 MB, float32 would take 128 MB, and the process may use 56 MB more than before. A thousand rows by
    facility location take at most 1 GB in all."""
    rng, file = np.random.default_rng(0), tmp_path / "features.npy"
    rows = np.lib.format.open_memmap(file, "w+", np.float16, (1 << 18, 128))
    for start in range(0, len(rows), 1 << 16):
        rows[start : start + (1 << 16)] = rng.random((1 << 16, 128), np.float32)
    rows.flush()
    run = subprocess.run([sys.executable, "-c", MAPPED, str(file)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["20", "20", "1000"]
