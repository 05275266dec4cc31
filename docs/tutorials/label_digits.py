# %% [markdown]
# # Label 24 digits instead of 72
#
# You have 1,797 images of digits and no labels. Labels cost a person's time. Which images should that person
# look at? This page chooses 24 of them, labels them, trains a model, and counts how many random labels give the
# same accuracy. It runs in seconds, on data that scikit-learn carries.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import smdl

pixels, classes = load_digits(return_X_y=True)  # (1797, 64): 8 x 8 pixels
print(f"{len(pixels)} images of {pixels.shape[1]} pixels")

# %% [markdown]
# ## Ask for the first rows
#
# [`smdl.Labels`](../api.md#labelling) needs features in which similar rows are near each other. Here the pixels do.
# Before there is any answer, it chooses rows that represent all the others: facility location.

# %%
labels = smdl.Labels(pixels)
rows = labels.next(12)
print(rows)

# %%
random = np.random.default_rng(0).permutation(len(pixels))[:12]
figure, axes = plt.subplots(2, 12, figsize=(9, 1.9))
for line, chosen in zip(axes, (rows, random), strict=True):
    for axis, row in zip(line, chosen, strict=True):
        axis.imshow(pixels[row].reshape(8, 8), cmap="gray_r")
        axis.set(xticks=[], yticks=[])
figure.suptitle("12 images: chosen (above) and at random (below)")
plt.show()

# %%
print(f"chosen: {len(set(classes[rows]))} of 10 classes, at random: {len(set(classes[random]))}")

# %% [markdown]
# ## Answer, and ask again
#
# In practice a person answers. Here the true classes do. After the answers a small model, the *probe*, knows
# something, and the next rows are those that it is unsure of and that represent many others.

# %%
labels.add(rows, classes[rows])
rows = labels.next(12)
labels.add(rows, classes[rows])
print(f"{len(labels)} labels, classes seen: {sorted(labels.classes)}")

# %% [markdown]
# ## What are they worth?
#
# One draw proves little. So: ten times, set 597 images aside to test on, choose from the other 1,200 in rounds of
# 12, and train a logistic regression on what is labelled. Random labels get the same treatment.


# %%
def accuracy(train, test, rows):
    model = LogisticRegression(max_iter=2000).fit(pixels[train[rows]] / 16, classes[train[rows]])
    return 100 * model.score(pixels[test] / 16, classes[test])


sizes = list(range(12, 97, 12))
chosen, at_random = [], []
for seed in range(10):
    order = np.random.default_rng(seed).permutation(len(pixels))
    train, test = order[:1200], order[1200:]
    labels = smdl.Labels(pixels[train])
    curve = []
    for _ in sizes:
        rows = labels.next(12)
        labels.add(rows, classes[train[rows]])
        curve.append(accuracy(train, test, np.array(list(labels.answers))))
    chosen.append(curve)
    at_random.append([accuracy(train, test, np.arange(size)) for size in sizes])  # the order is random already

# %%
figure, axis = plt.subplots(figsize=(7, 4))
for name, curves in (("chosen", chosen), ("at random", at_random)):
    mean, spread = np.mean(curves, axis=0), np.std(curves, axis=0, ddof=1)
    axis.plot(sizes, mean, marker="o", label=name)
    axis.fill_between(sizes, mean - spread, mean + spread, alpha=0.2)
axis.set(xlabel="labels", ylabel="test accuracy, %", xticks=sizes)
axis.set_title("Accuracy over labels: mean and standard deviation of ten draws")
axis.legend(loc="lower right")
plt.show()

# %%
for size, one, other in zip(sizes, np.mean(chosen, axis=0), np.mean(at_random, axis=0), strict=True):
    print(f"{size:3} labels: {one:.1f} % chosen, {other:.1f} % at random")
reached = np.mean(chosen, axis=0)[sizes.index(24)]
enough = next(size for size, value in zip(sizes, np.mean(at_random, axis=0), strict=True) if value >= reached)
print(f"24 chosen labels reach {reached:.1f} %; random ones need {enough}")

# %% [markdown]
# ## Before you rely on it
#
# - It pays where the features mean something. On eight tasks with known labels, half of the labels were enough
#   ([the contest](../labelling.md#the-contest)); with features that say nothing, expect nothing.
# - Chosen rows are unusual on purpose, so never measure a model on them. `labels.check(50)` draws rows at random to
#   measure by, and [the next tutorial](label_texts.md) uses it.
# - `smdl label` does the same with files, for people who fill in a spreadsheet: [labelling](../labelling.md).
