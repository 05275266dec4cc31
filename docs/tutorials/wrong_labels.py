# %% [markdown]
# # Find wrong labels
#
# The default loader keeps what the training forwards say about the labels, and can say which are probably wrong: no
# second model, no further forward pass. This page makes 10 % of the digits' labels wrong, finds most of them, and
# corrects them.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

import smdl

torch.set_num_threads(1)
rng = np.random.default_rng(0)
pixels, classes = load_digits(return_X_y=True)
inputs = torch.tensor(pixels, dtype=torch.float32) / 16
order = rng.permutation(len(inputs))
train, test = order[:1200], order[1200:]

given = classes[train].copy()
wrong = rng.choice(len(train), 120, replace=False)
given[wrong] = (given[wrong] + rng.integers(1, 10, 120)) % 10  # another class
print(f"{(given != classes[train]).sum()} of {len(given)} labels are wrong")


# %%
def fit(labels, epochs=6, seed=0, method="recommended"):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    dataset = TensorDataset(inputs[train], torch.tensor(labels))
    loader = smdl.DataLoader(dataset, model, batch_size=32, method=method, seed=seed)
    for _ in range(epochs):
        for batch, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), targets).backward()
            optimizer.step()
    with torch.no_grad():
        accuracy = (model(inputs[test]).argmax(dim=1).numpy() == classes[test]).mean()
    return loader, 100 * accuracy


loader, before = fit(given)
suspects = loader.suspects()
found = np.isin(suspects.indices, wrong)
print(
    f"suspects: {len(suspects.indices)}; {found.mean():.0%} of them are wrong labels, "
    f"and {np.isin(wrong, suspects.indices).mean():.0%} of the wrong labels are among them"
)

# %% [markdown]
# The most suspicious come first, so look at them in order:

# %%
figure, axes = plt.subplots(2, 10, figsize=(9, 2.4))
for axis, row in zip(axes.ravel(), suspects.indices, strict=False):
    axis.imshow(inputs[train[row]].reshape(8, 8), cmap="gray_r")
    right = given[row] == classes[train[row]]
    axis.set_title(f"{given[row]}", color="tab:green" if right else "tab:red", fontsize=11)
    axis.set(xticks=[], yticks=[])
figure.suptitle("The first 20 suspects with their given labels. Red: the label is wrong")
figure.tight_layout()
plt.show()

# %% [markdown]
# ## How far down the list?
#
# `suspects(count=…)` ranks any number of samples. Without `count` the list is as long as labels seem to be wrong.

# %%
ranked = loader.suspects(count=400).indices
hits = np.cumsum(np.isin(ranked, wrong))
figure, axis = plt.subplots(figsize=(7, 3.5))
axis.plot(np.arange(1, 401), hits, label="ranked by suspicion")
axis.plot([0, 400], [0, 400 * 120 / 1200], "--", color="gray", label="at random")
axis.axvline(len(suspects.indices), color="tab:red", linestyle=":", label="end of the list without count")
axis.set(xlabel="labels looked at", ylabel="wrong labels found")
axis.set_title("Wrong labels found over labels looked at")
axis.legend()
plt.show()

# %% [markdown]
# ## Correct them
#
# A person looks at the suspects and corrects what is wrong; the true classes play that person here.

# %%
corrected = given.copy()
corrected[suspects.indices] = classes[train[suspects.indices]]
table = {"labels as given": given, "suspects corrected": corrected, "all labels right": classes[train]}
for name, labels in table.items():
    scores = [fit(labels, epochs=15, seed=seed, method="uniform")[1] for seed in range(5)]
    print(f"{name:20}{np.mean(scores):.1f} ± {np.std(scores, ddof=1):.1f} %   (mean ± standard deviation, 5 seeds)")

# %% [markdown]
# On 1,200 digits the wrong labels cost little, so the gain of correcting them is of the size of the spread over seeds.
# What you surely have is a list that is mostly right.
#
# - It may be called late: the means over all forwards remember what the model said before it learned labels by heart.
# - Rare samples look like errors. Look before you delete.
# - It needs four classes or more. One class that is always confused with the same other one looks like a hard one.
#
# Measured beside cleanlab on three data sets, with the rows that it loses: [wrong labels](../suspects.md).
