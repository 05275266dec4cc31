# %% [markdown]
# # Text: choose what to label, in rounds
#
# The texts of this page are real and need no download: the docstrings of the Python packages that are installed
# here. The task: from which package does a text come? The names of the packages are removed.
#
# Features are TF-IDF weights, reduced by a singular value decomposition: fast, and without a language model. With a
# sentence-embedding model the features are better; `smdl label --text` [uses one that you have](../select.md#text).

# %%
import importlib
import inspect
import pkgutil
import re
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

import smdl

PACKAGES = ("numpy", "scipy.stats", "scipy.sparse", "sklearn", "torch.nn", "matplotlib", "pyarrow", "rich")


def docstrings(package):
    """Return the docstrings of the functions and classes of a package, without names of packages."""
    found = set()
    root = importlib.import_module(package)
    modules = [root, *(info.name for info in pkgutil.iter_modules(root.__path__, package + "."))]
    for module in modules:
        try:
            module = module if inspect.ismodule(module) else importlib.import_module(module)
        except Exception:  # a module for another system
            continue
        for _, thing in inspect.getmembers(module, lambda each: inspect.isclass(each) or inspect.isfunction(each)):
            if (thing.__module__ or "").startswith(package.partition(".")[0]) and thing.__doc__:
                found.add(
                    re.sub(r"numpy|np\.|scipy|sklearn|torch|matplotlib|plt\.|pyarrow|pa\.|rich", " ", thing.__doc__)
                )
    return sorted(text for text in found if len(text) > 80)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    texts = {package: docstrings(package)[:250] for package in PACKAGES}
pile = [text for each in texts.values() for text in each]
truth = np.repeat(list(texts), [len(each) for each in texts.values()])
for package, each in texts.items():
    print(f"{package:14}{len(each):4} texts, such as: {' '.join(each[len(each) // 2].split())[:60]} …")

# %%
weights = TfidfVectorizer(min_df=3, sublinear_tf=True, stop_words="english").fit_transform(pile)
features = normalize(TruncatedSVD(100, random_state=0).fit_transform(weights)).astype(np.float32)
print(f"{features.shape[0]} texts, {features.shape[1]} features each")

# %% [markdown]
# ## The rounds
#
# 60 *check rows* are drawn at random and labelled first. They measure; they never train. Then each round labels 16
# rows that are worth it. `accuracy` comes with a 95 % interval, and `forecast` says what more labels would bring.

# %%
labels = smdl.Labels(features)
rows = labels.check(60)
labels.add(rows, truth[rows])

for number in range(1, 7):
    rows = labels.next(16)
    labels.add(rows, truth[rows])
    print(f"round {number}: {16 * number} labels, {labels.accuracy}")

# %%
forecast = labels.forecast(96)
print(f"96 more labels: {forecast}")
print(f"for 95 %: about {labels.needed(0.95)} labels")

# %% [markdown]
# The first rows of a round are the most valuable ones:

# %%
for row in labels.next(4):
    print(f"{row:5}  {' '.join(pile[row].split())[:90]} …")

# %% [markdown]
# ## Was it worth it?
#
# Here all classes are known, so random labels can be tried too: ten draws of them, and ten draws of check rows for
# the rounds. The accuracy is that on all texts without a label. Your own data have no such truth; for data with
# known labels, `smdl label simulate` makes this comparison ([the fifth tutorial](does_it_pay.md)).


# %%
def rest_accuracy(rows):
    rest = np.setdiff1d(np.arange(len(pile)), rows)
    model = LogisticRegression(C=100, max_iter=2000).fit(features[rows], truth[rows])
    return 100 * model.score(features[rest], truth[rest])


sizes = [16 * number for number in range(1, 7)]
chosen, at_random = [], []
for seed in range(10):
    labels, curve = smdl.Labels(features, seed=seed), []
    labels.check(60)  # not chosen, so another seed has another pile
    for _ in sizes:
        rows = labels.next(16)
        labels.add(rows, truth[rows])
        curve.append(rest_accuracy(np.array(list(labels.answers))))
    chosen.append(curve)
    order = np.random.default_rng(seed).permutation(len(pile))
    at_random.append([rest_accuracy(order[:size]) for size in sizes])

# %%
figure, axis = plt.subplots(figsize=(7, 4))
for name, curves in (("chosen", chosen), ("at random", at_random)):
    mean, spread = np.mean(curves, axis=0), np.std(curves, axis=0, ddof=1)
    axis.plot(sizes, mean, marker="o", label=name)
    axis.fill_between(sizes, mean - spread, mean + spread, alpha=0.2)
axis.set(xlabel="labels", ylabel="accuracy on the rest, %", xticks=sizes)
axis.set_title("Accuracy over labels: mean and standard deviation of ten draws")
axis.legend(loc="lower right")
plt.show()

# %%
for size, one, other in zip(sizes, np.mean(chosen, axis=0), np.mean(at_random, axis=0), strict=True):
    print(f"{size:3} labels: {one:.1f} % chosen, {other:.1f} % at random")

# %% [markdown]
# ## With files and people
#
# ```sh
# smdl label reviews.csv --text body --model models/all-MiniLM-L6-v2 --size 50 --check 50
# ```
#
# writes a folder with a table to fill in, and the same command with the folder reads it and writes the next round:
# [labelling](../labelling.md).
