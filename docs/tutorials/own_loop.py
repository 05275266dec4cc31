# %% [markdown]
# # Your own training loop, on imbalanced data
#
# The loop stays yours: model, optimizer, loss. One line changes, the loader. This page trains a small network on
# digits with a long tail, in which the last classes are rare, and looks at each class.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

import smdl

torch.set_num_threads(1)
pixels, classes = load_digits(return_X_y=True)
inputs, targets = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(classes)
order = torch.from_numpy(np.random.default_rng(0).permutation(len(inputs)))
train, test = order[:1200], order[1200:]

# %%
# class c keeps 120 * 0.7 ** c of its images
kept = torch.cat([train[targets[train] == c][: round(120 * 0.7**c)] for c in range(10)])
dataset = TensorDataset(inputs[kept], targets[kept])
print("images per class:", torch.bincount(targets[kept]).tolist())

# %% [markdown]
# ## The loop
#
# `smdl.DataLoader` has as many batches per epoch as torch's, so schedules stay as they are.


# %%
def run(method, seed, epochs=15):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = smdl.DataLoader(dataset, model, batch_size=32, method=method, seed=seed)  # <- the changed line
    seen = torch.zeros(10)
    for _ in range(epochs):
        for batch, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), labels).backward()
            optimizer.step()
            seen += torch.bincount(labels, minlength=10)
    with torch.no_grad():
        right = model(inputs[test]).argmax(dim=1) == targets[test]
    return np.array([100 * right[targets[test] == c].float().mean() for c in range(10)]), (seen / seen.sum()).numpy()


print(smdl.DataLoader(dataset, torch.nn.Linear(64, 10), batch_size=32))

# %% [markdown]
# Three methods: `uniform` is plain SGD, `balanced` draws every class equally often, and `observed`
# chooses the samples whose last-layer gradients represent a pool of three batches. It reads no class counts.

# %%
methods = ("uniform", "balanced", "observed")
runs = {method: [run(method, seed) for seed in range(5)] for method in methods}
for method in methods:
    mean = np.array([accuracy.mean() for accuracy, _ in runs[method]])
    rare = np.array([accuracy[6:].mean() for accuracy, _ in runs[method]])
    print(
        f"{method:12} accuracy {mean.mean():.1f} ± {mean.std(ddof=1):.1f} %, "
        f"classes 6 to 9: {rare.mean():.1f} ± {rare.std(ddof=1):.1f} %   (mean ± standard deviation, 5 seeds)"
    )

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6))
for place, method in enumerate(methods):
    accuracy = np.mean([one for one, _ in runs[method]], axis=0)
    share = np.mean([one for _, one in runs[method]], axis=0)
    left.bar(np.arange(10) + 0.27 * (place - 1), accuracy, width=0.27, label=method)
    right.plot(range(10), 100 * share, marker="o", label=method)
left.set(xlabel="class, from frequent to rare", ylabel="test accuracy, %", xticks=range(10), ylim=(0, 100))
right.set(xlabel="class", ylabel="share of what was trained on, %", xticks=range(10))
left.legend(loc="lower left")
figure.suptitle("Accuracy per class, and what each method trained on")
figure.tight_layout()
plt.show()

# %% [markdown]
# ## What to take from this
#
# - If the labels show the imbalance, use `smdl.balanced_softmax` as the loss, `smdl.refit_head` after training, or
#   `balanced`: all are simple and cost next to nothing.
# - `observed` balances less, and prefers samples that the model gets wrong, wrong labels among them. [Where it
#   pays](../results.md), with intervals.
# - Stop and resume: `loader.state_dict()` is exact, mid-epoch too. More: [the loader](../loader.md),
#   [other models and losses](../models.md), [Lightning, transformers, Accelerate, skorch](../trainers.md).
