"""
Text classification
===================

A vectorizer scales each document to norm one. This is public, and all that a private fit has to
know: ``row_norm=1`` replaces a range for each of a thousand columns. The documents are passages
from the source of two packages; the model predicts the package.
"""

# %%
# Passages of 40 words, without the names of the packages. A hash gives the column of a word, so no
# vocabulary is learned from the documents.
import re
from pathlib import Path

import numpy as np
import sklearn
from matplotlib import pyplot as plt
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from skdpadmm import DPAdmmLogisticRegression


def passages(package, limit, length=40):
    files = sorted(Path(package.__file__).parent.rglob("*.py"))
    text = " ".join(file.read_text(encoding="utf-8", errors="ignore") for file in files)
    words = re.findall(r"\b(?!np\b|numpy\b|sklearn\b)[a-z]{2,}\b", text.lower())
    starts = np.random.default_rng(0).permutation(len(words) // length)[:limit] * length
    return [" ".join(words[start : start + length]) for start in starts]


documents, labels = passages(np, 6000) + passages(sklearn, 3000), [0] * 6000 + [1] * 3000
X = HashingVectorizer(n_features=1024).transform(documents)
X_train, X_test, y_train, y_test = train_test_split(X, labels, random_state=0)

# %%
# Without ``row_norm``, a part of the budget would go into estimating the norm of rows.
epsilons = [0.5, 1, 2, 4, 8]
accuracy = [
    DPAdmmLogisticRegression(epsilon=epsilon, classes=[0, 1], row_norm=1.0, random_state=0)
    .fit(X_train, y_train)
    .score(X_test, y_test)
    for epsilon in epsilons
]
not_private = LogisticRegression(max_iter=300).fit(X_train, y_train).score(X_test, y_test)
constant = 1 - np.mean(y_test)

# %%
fig, ax = plt.subplots()
ax.axhline(not_private, color="0.3", linestyle="--", label="not private")
ax.semilogx(epsilons, accuracy, "o-", label="private, row_norm=1")
ax.axhline(constant, color="0.4", linestyle=":", label="constant")
ax.set_xticks(epsilons, epsilons)
ax.minorticks_off()
ax.set(xlabel="epsilon", ylabel="accuracy on other passages")
ax.set_title("Epsilon 1 gives most of the accuracy")
ax.legend()
plt.show()
