# %% [markdown]
# # Does it pay on my data?
#
# Nobody can tell from another data set. Two commands measure it on yours: `smdl.compare` for training, and
# `smdl label simulate` for labelling. Both repeat everything over seeds, report intervals, and say so if they
# cannot tell.

# %%
import subprocess
import sys

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
test = order[1200:]
tail = torch.cat([order[:1200][targets[order[:1200]] == c][: round(120 * 0.7**c)] for c in range(10)])
dataset = TensorDataset(inputs[tail], targets[tail])  # a long tail

# %% [markdown]
# ## Training: your function, our loaders
#
# Write a function that trains until its loader ends and returns numbers. Everything in it is yours. `compare` calls
# it with the loaders of several methods, over several seeds.


# %%
def train(make_loader, seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = make_loader(model)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, loader.total_steps)
    for batch, labels in loader:  # ends after loader.total_steps batches
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch), labels).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        right = model(inputs[test]).argmax(dim=1) == targets[test]
    rare = targets[test] >= 6
    return {"accuracy": float(right.float().mean()), "rare_classes": float(right[rare].float().mean())}


report = smdl.compare(
    train,
    dataset,
    methods=("uniform", "balanced", "observed"),
    seeds=5,
    steps=200,
    batch_size=32,
    out="training",
    quiet=True,
)
print(report)

# %%
figure, axis = plt.subplots(figsize=(7, 2.2))
for place, found in enumerate(report.results.tests):
    axis.errorbar(100 * found.difference, place, xerr=100 * found.half, fmt="o", capsize=5)
axis.axvline(0, color="gray", linestyle="--")
axis.set(yticks=[0, 1], yticklabels=[found.arm for found in report.results.tests], ylim=(-0.5, 1.5))
axis.set(xlabel="points of test accuracy more than uniform, with 95 % intervals")
axis.set_title("What each method gains over plain SGD")
plt.show()

# %% [markdown]
# This compared equal *steps*. A method that takes longer per step looks free then. `minutes=10` in place of `steps=`
# gives every method equal *time*, which is what you pay for; it needs more minutes than this page has. On a network as
# small as this one the time matters: a step of `observed` takes nearly twice as long
# ([performance](../performance.md#what-a-training-step-costs)).
#
# ## Labelling: what would have been saved?
#
# If you have a data set whose labels are known, and new data that are like it, ask what choosing would have saved
# there.

# %%
np.savez("digits.npz", features=pixels.astype(np.float32), digit=classes)
command = "label simulate digits.npz --features features --labels digit --size 12 --rounds 6 --seeds 5 --out simulated"
done = subprocess.run(
    [sys.executable, "-m", "smdl", *command.split(), "--methods", "random,labels,margin", "--quiet"],
    capture_output=True,
    text=True,
    check=True,
)
print(done.stdout)

# %% [markdown]
# And features that say nothing? Shuffle the pixels' rows, so that an image has the features of another one: there is
# nothing to learn, and nothing to save. A tool that found a saving here would be wrong.

# %%
np.savez("shuffled.npz", features=np.random.default_rng(1).permutation(pixels).astype(np.float32), digit=classes)
command = command.replace("digits.npz", "shuffled.npz").replace("simulated", "simulated_shuffled")
done = subprocess.run(
    [sys.executable, "-m", "smdl", *command.split(), "--methods", "random,labels,margin", "--quiet"],
    capture_output=True,
    text=True,
    check=True,
)
print(done.stdout)

# %% [markdown]
# The interval contains zero, and the sentence below the table says that nothing was decided. The columns that count
# labels mean nothing here, because no curve rises.
#
# Both write a self-contained `report.html` with curves and intervals. How the tests are made, and how many seeds a
# verdict needs: [comparing](../comparing.md). What we found on seven data sets: [results](../results.md).
