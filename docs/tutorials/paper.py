# %% [markdown]
# # The paper, step by step
#
# *Submodular Batch Selection for Training Deep Neural Networks* (Joseph et al., IJCAI 2019) chooses each batch by a
# score with four terms. This page computes each term on a pool that can be drawn, checks it against its equation,
# maximises the sum as Algorithm 1 does, and ends with what we could not confirm.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

import smdl

torch.set_num_threads(1)
rng = np.random.default_rng(0)
centres = np.array([[1.0, 0.2], [0.3, 1.0], [1.1, 1.1]])
points = np.concatenate([centre + rng.normal(0, 0.09, (60, 2)) for centre in centres] + [[[1.9, 0.3], [0.05, 1.8]]])
logits = -8 * np.linalg.norm(points[:, None] - centres, axis=2)
probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
reference = np.abs(points @ rng.normal(size=(2, 6)))  # features of another model, all ≥ 0
pool = smdl.Pool(points, probabilities=probabilities, reference=reference)
print(f"a pool of {len(pool)} points, two of them far from the others")

# %% [markdown]
# ## The four terms
#
# V is the pool, S the batch so far, and a the sample that may join it.
#
#     U(a)     = − Σ_c p_c(a) log p_c(a)                    the model is uncertain          (Eq. 4)
#     R(a | S) = min_{j ∈ S} φ(a, j)                        far from what is chosen         (Eq. 5)
#     MC(a)    = cos(a, mean of V)                          near the centre of the data     (Eq. 6)
#     FM(a)    = Σ_u g(m_u(a))                              features of a reference model   (Eq. 7)
#     F(a | S) = λ1 U + λ2 R + λ3 MC + λ4 FM                the gain, with λ ≥ 0
#
# `smdl` scales each term by its largest value over the pool, so that the weights mean something.

# %%
entropy = -(probabilities * np.log(probabilities)).sum(axis=1)
direction = points.mean(axis=0) / np.linalg.norm(points.mean(axis=0))
terms = {
    "uncertainty": entropy,
    "redundancy, S = {0}": np.linalg.norm(points - points[0], axis=1),
    "mean_closeness": points @ direction / np.linalg.norm(points, axis=1),
    "feature_match": np.sqrt(reference).sum(axis=1),
}
figure, axes = plt.subplots(1, 4, figsize=(11, 3))
for axis, (name, values) in zip(axes, terms.items(), strict=True):
    drawn = axis.scatter(*points.T, c=values, s=14, cmap="viridis")
    figure.colorbar(drawn, ax=axis, shrink=0.7)
    axis.set(title=name, xticks=[], yticks=[])
axes[1].scatter(*points[0], marker="*", s=140, color="tab:red")
figure.suptitle("Each term over the pool, from its equation")
figure.tight_layout()
plt.show()

# %% [markdown]
# The library computes the same numbers: `evaluate` gives F of a batch, here of one sample for each modular term.

# %%
for name in ("uncertainty", "mean_closeness", "feature_match"):
    objective = smdl.Objective(**{name: 1.0})
    ours = np.array([float(smdl.evaluate(pool, objective, [row])) for row in range(len(points))])
    agreement = np.corrcoef(ours, terms[name])[0, 1]
    print(f"{name:16} correlation of the library's scores with the equation: {agreement:.6f}")

# %% [markdown]
# ## Greedy: one sample at a time
#
# The best batch is NP-hard to find. Greedy adds the sample with the largest gain, again and again.

# %%
objectives = {
    "the paper's weights": smdl.Objective.paper(),
    "redundancy alone": smdl.Objective(redundancy=1.0),
    "facility location": smdl.Objective(facility_location=1.0),
}
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4))
for axis, (name, objective) in zip(axes, objectives.items(), strict=True):
    batch = smdl.select(pool, objective, 9)
    axis.scatter(*points.T, s=12, color="lightgray")
    axis.scatter(*points[batch.indices].T, s=40, color="tab:blue")
    for number, row in enumerate(batch.indices, 1):
        axis.annotate(f"{number}", points[row], xytext=(4, 3), textcoords="offset points", fontsize=8)
    axis.set(title=name, xticks=[], yticks=[])
figure.suptitle("Nine picks, in the order picked")
figure.tight_layout()
plt.show()

# %% [markdown]
# The paper's weights give most to mean closeness, and the batch shows it: its samples lie in one direction.
# Redundancy takes the outliers first. Facility location, which is not in the paper, takes samples that represent
# others; it is the default of `smdl.select`.
#
# ## Algorithm 1: partitions
#
# For large pools the paper splits V at random into m parts, maximises each part by stochastic greedy, merges the
# picks, and maximises again.

# %%
rows = rng.normal(size=(4000, 16))
chances = rng.dirichlet(np.ones(10), 4000)
large = smdl.Pool(rows, probabilities=chances, reference=np.abs(rows))
paper = smdl.Objective.paper()
exact = smdl.select(large, paper, 50)
algorithm_1 = smdl.select(large, paper, 50, optimizer="stochastic", partitions=10, epsilon=0.01)
by_chance = [float(smdl.evaluate(large, paper, rng.permutation(4000)[:50])) for _ in range(20)]
print(
    f"F of exact greedy {exact.value:.3f}, of Algorithm 1 {algorithm_1.value:.3f}, "
    f"of a random batch {np.mean(by_chance):.3f}"
)

# %% [markdown]
# ## Is F submodular?
#
# The paper's lemmas say so. R as printed, the sum over the final batch, is not even monotone: three points on a line
# are enough to see it.

# %%
line = smdl.Pool(features=[[0.0], [5.0], [10.0]])
redundancy = smdl.Objective(redundancy=1.0, distance="euclidean")
print("R of {0, 10} as printed:   ", smdl.evaluate(line, redundancy, [0, 2]).as_printed)
print("R of {0, 5, 10} as printed:", smdl.evaluate(line, redundancy, [0, 1, 2]).as_printed)

# %% [markdown]
# So `smdl` maximises the gains of the lemma, min φ(a, j), which only fall, and claims no 1 − 1/e for them.
#
# ## Does it train better?
#
# Algorithm 2 chooses every batch this way, with the model in training. Three seeds of a small network on the digits,
# at equal steps, which leaves out that the paper's steps take longer:

# %%
pixels, classes = load_digits(return_X_y=True)
inputs, targets = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(classes)
order = torch.from_numpy(rng.permutation(len(inputs)))
train, test = order[:600], order[1200:]


def run(method, seed, epochs=8):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = smdl.DataLoader(TensorDataset(inputs[train], targets[train]), model, 50, method=method, seed=seed)
    curve = []
    for _ in range(epochs):
        for batch, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), labels).backward()
            optimizer.step()
        with torch.no_grad():
            curve.append(100 * float((model(inputs[test]).argmax(dim=1) == targets[test]).float().mean()))
    return curve


curves = {method: np.array([run(method, seed) for seed in range(3)]) for method in ("uniform", "paper", "observed")}
figure, axis = plt.subplots(figsize=(7, 3.6))
for method, each in curves.items():
    axis.plot(range(1, 9), each.mean(axis=0), marker="o", label=method)
    axis.fill_between(range(1, 9), each.min(axis=0), each.max(axis=0), alpha=0.2)
axis.set(xlabel="epoch", ylabel="test accuracy, %")
axis.set_title("Test accuracy over epochs: mean and range of three seeds")
axis.legend(loc="lower right")
plt.show()

# %%
for method, each in curves.items():
    print(
        f"{method:12} after 8 epochs: {each[:, -1].mean():.1f} % ({each[:, -1].min():.1f} to {each[:, -1].max():.1f})"
    )

# %% [markdown]
# One small run decides nothing. [The paper's claims, one by one](../claims.md) has the verdict of all our runs, and
# `smdl reproduce table-1 --scale smoke` repeats a table in a minute. Each term and method has
# [a card](../methods/README.md) with its costs and failures.
