# %% [markdown]
# # Ten million rows, on one machine and on Ray
#
# This page is scaled down to 400,000 rows, so that it takes a minute. The calls are those of ten million rows, and so
# is what they do: above 65,536 rows the time depends on how many rows are chosen, hardly on how many there are.
# [Many rows](../scale.md#measured) has the measured times of 10⁵ to 10⁷ rows.

# %%
import subprocess
import sys
import time

import matplotlib.pyplot as plt
import numpy as np

import smdl

# %% [markdown]
# ## Features on disk
#
# A float16 file is read in place: it is never copied into memory as a whole. Here 400,000 rows of 32 numbers, in 300
# clusters of very different sizes.

# %%
rng = np.random.default_rng(0)
sizes = rng.zipf(1.3, 300).clip(max=3000).astype(float)
cluster = rng.choice(300, 400_000, p=sizes / sizes.sum())
centres = rng.normal(size=(300, 32))
file = np.lib.format.open_memmap("rows.npy", mode="w+", dtype=np.float16, shape=(400_000, 32))
for start in range(0, len(file), 50_000):
    part = slice(start, start + 50_000)
    file[part] = centres[cluster[part]] + 0.35 * rng.normal(size=(50_000, 32))
file.flush()
X = np.load("rows.npy", mmap_mode="r")
X.shape, X.dtype, f"{X.nbytes / 1e6:.0f} MB"

# %% [markdown]
# ## The plan, before the work
#
# `smdl.explain` says how the work will be done, and how long it takes. It needs the shape alone, so a file of ten
# million rows that holds nothing yet can be asked about too.

# %%
print(smdl.explain(X, "facility_location", 300))

# %%
empty = np.lib.format.open_memmap("ten_million.npy", mode="w+", dtype=np.float16, shape=(10_000_000, 64))
print(smdl.explain(empty, "facility_location", 1000))

# %% [markdown]
# ## The choice


# %%
def timed(count, size=300):
    started = time.process_time()
    chosen = smdl.select(X[:count], "facility_location", size)
    return chosen, time.process_time() - started


timed(70_000, 10)  # loads the compiled loops
seconds = {}
for count in (100_000, 200_000, 400_000):
    chosen, seconds[count] = timed(count)
    print(f"300 of {count:,} rows: {seconds[count]:.1f} CPU s")

# %%
random = rng.permutation(len(X))[:300]
print(f"value {chosen.value:.4f}, on other rows {chosen.held_out:.4f}")
print(
    f"clusters among 300 rows: {len(set(cluster[chosen.indices]))} chosen, {len(set(cluster[random]))} at random, "
    f"of {len(set(cluster))}"
)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.4))
left.plot(list(seconds), list(seconds.values()), marker="o")
left.set(xlabel="rows", ylabel="CPU seconds", title="300 rows chosen of more and more", ylim=(0, None))
left.ticklabel_format(axis="x", style="plain")
rank = np.argsort(-np.bincount(cluster, minlength=300))
for name, rows in (("chosen", chosen.indices), ("at random", random)):
    right.step(range(300), np.bincount(cluster[rows], minlength=300)[rank].cumsum(), label=name)
right.set(xlabel="clusters, the largest first", ylabel="rows in these clusters", title="where the 300 rows are")
right.legend(loc="lower right")
figure.suptitle("Time over rows, and which clusters the rows come from")
figure.tight_layout()
plt.show()

# %% [markdown]
# ## The same from the command line
#
# `smdl select` reads shards in blocks, resumes after an interruption and writes a report. With `--partitions` it
# chooses in random parts first and then among their picks: for files that one machine cannot hold.

# %%
command = "select rows.npy --size 300 --out chosen.csv --engine local --quiet"
done = subprocess.run([sys.executable, "-m", "smdl", *command.split()], capture_output=True, text=True, check=True)
print(done.stdout)

# %% [markdown]
# ## On Ray
#
# These two commands are shown and not run here, because this site is built without Ray:
#
#     pip install ".[ray]"
#     smdl select "s3://bucket/shards/*.npy" --size 1000 --engine ray --out chosen.parquet
#
# The same rows come out, whatever the number of workers; a test holds that. Measured: two workers are 1.76 × as fast
# as one ([many rows](../scale.md#measured)). Parts cost more work than one selection, so use Ray for data that one
# machine cannot hold, not for speed.
