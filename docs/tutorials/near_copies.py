# %% [markdown]
# # Remove near-duplicates and leaks
#
# Copies in a training set waste time, and copies of test rows make a model look better than it is. This page plants
# both in the digits, finds them, and shows what a leak does to a number that you would have believed.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

import smdl

rng = np.random.default_rng(0)
pixels, classes = load_digits(return_X_y=True)
order = rng.permutation(len(pixels))
train, test = order[:200], order[1000:]
X, y = pixels[train], classes[train]
X_test, y_test = pixels[test], classes[test]

# %% [markdown]
# Plant copies with slight noise: 100 of training rows, and 300 of test rows, the leaks.


# %%
def noisy(rows):
    return np.clip(rows + rng.normal(0, 0.8, rows.shape), 0, 16)


copied = rng.integers(0, len(X), 100)
leaked = rng.choice(len(X_test), 300, replace=False)
features = np.concatenate([X, noisy(X[copied]), noisy(X_test[leaked])])
answers = np.concatenate([y, y[copied], y_test[leaked]])
print(f"{len(features)} training rows, of which {len(copied)} are copies and {len(leaked)} are leaks")

# %% [markdown]
# ## Find the copies
#
# A row is a copy if its cosine similarity with a kept row reaches the threshold. `at` tries other thresholds
# without another search, and `pairs` shows the pairs just above and just below: choose the threshold by looking.

# %%
found = smdl.deduplicate(features, 0.985, against=X_test, floor=0.9)
print(f"kept {len(found.kept)} of {len(found)}; copies of test rows: {(found.against >= 0).sum()}")

# %%
thresholds, kept = found.curve()
figure, axis = plt.subplots(figsize=(7, 3.5))
axis.plot(thresholds, kept, marker=".")
axis.axhline(len(X), color="gray", linestyle="--", label="rows that are no copies")
axis.axvline(0.985, color="tab:red", linestyle=":", label="threshold")
axis.set(xlabel="cosine similarity", ylabel="rows kept")
axis.set_title("How many rows each threshold keeps")
axis.legend()
plt.show()

# %%
above, below = smdl.deduplicate(features, 0.985, floor=0.9).pairs(6)
figure, axes = plt.subplots(2, 12, figsize=(9, 1.9))
for line, pairs in zip(axes, (above, below), strict=True):
    for axis, row in zip(line, pairs.ravel(), strict=True):
        axis.imshow(features[row].reshape(8, 8), cmap="gray_r")
        axis.set(xticks=[], yticks=[])
figure.suptitle("Pairs just above the threshold, and just below it")
plt.show()

# %% [markdown]
# We know what was planted, so we can count. Digits that are written nearly alike are above the threshold too; whether
# these count as copies is for you to say.

# %%
dropped = np.ones(len(features), bool)
dropped[found.kept] = False
print(f"leaks that were dropped: {dropped[300:].mean():.0%}")
print(f"planted copies that are kept beside their originals: {(~dropped[200:300] & ~dropped[copied]).sum()} of 100")
print(f"rows without a planted copy that were dropped: {dropped[np.setdiff1d(np.arange(200), copied)].mean():.0%}")

# %% [markdown]
# ## What the leak did
#
# A nearest neighbour remembers its training rows, so it profits most from a leak. Four numbers, of which the first is
# the one that you would have believed:
#
# 1. all test rows, trained with the leaks;
# 2. the test rows that did not leak, trained with the leaks;
# 3. all test rows, trained on the rows that `deduplicate` kept;
# 4. all test rows, trained on the 200 rows that were there before anything was planted.


# %%
def score(rows, on=slice(None)):
    model = KNeighborsClassifier(1).fit(features[rows], answers[rows])
    return 100 * model.score(X_test[on], y_test[on])


every = np.arange(len(features))
results = {
    "with leaks": score(every),
    "with leaks, other rows": score(every, np.setdiff1d(np.arange(len(X_test)), leaked)),
    "after deduplicate": score(found.kept),
    "before planting": score(np.arange(200)),
}
for name, value in results.items():
    print(f"{name:26}{value:.1f} %")

# %%
figure, axis = plt.subplots(figsize=(7, 2.6))
axis.scatter(list(results.values()), list(results), s=80, color=["tab:red", "tab:gray", "tab:blue", "tab:gray"])
axis.set(xlim=(95, 100), xlabel="test accuracy, %", ylim=(-0.5, 3.5))
axis.grid(axis="x", alpha=0.4)
axis.invert_yaxis()
axis.set_title("One nearest neighbour: what the leak makes of it")
plt.show()

# %% [markdown]
# The second number is above the fourth: a leaked row is also a correctly labelled digit, so 300 more of them make a
# better model. That part of the gain is real. The first number adds a part that is not: the model has seen the answers.
# `deduplicate` gives up both, because rows that are in the test set cannot be trained on.
#
# For files, `smdl dedup train.npy --against test.npy --out clean.csv` does this and writes a report with the pairs:
# [near-copies](../dedup.md), with its recall and speed up to a million rows.
