"""Linear models learned from private marginals, compared with the defaults on small tables.

    python benchmarks/private_marginals.py            everything, twenty minutes on one core
    python benchmarks/private_marginals.py --redraw   the table of the last run

AIM (McKenna et al. 2022) releases noisy two-way marginals of a table of categories and fits a
graphical model to them. Two learners use it: scikit-learn on synthetic rows of that model, and
DD-SSP (Ferrando and Sheldon 2025), least squares or the logistic model of a quadratic loss from the
second moment of the same model. Nothing is to be installed: AIM and its model are below, in numpy.

Numbers are cut into 5, 8 or 16 bins of equal width within their public bounds. In each cell of the
table the number of bins that does best on the test rows is chosen for free, as nobody could.
Columns that one-hot encode a category are one attribute.

All have the same budget under replace-one with a public number of rows, where a record changes two
cells of a marginal by one. Test rows are raw. At most 5,000 training rows, development sets only.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _data
import numpy as np
from _peers import Array, Cell, evaluate
from _published import from_statistics, zcdp_rho
from accuracy import constant, fit_ours, indices, non_private
from sklearn.linear_model import LogisticRegression, Ridge
from tqdm import tqdm

OUTPUT = Path(__file__).parent / "output" / "private_marginals.json"
SETS = ("contraceptive", "pima", "default", "law", "adult", "carseats", "pension", "fertil2")
EPSILONS, DELTA, RELATION, SPLITS = (0.3, 1.0, 3.0), 1e-5, "replace_one", 10
# A fifth of the rows are for testing.
BINS, MAX_ROWS = (5, 8, 16), 6_250
# Megabytes of the model at most; steps that fit it after each round, and at the end.
MODEL_SIZE, STEPS, LAST_STEPS = 10.0, 300, 1_000
# AIM's rounds for each attribute if no noise were ever halved: 16 in the paper.
ROUNDS = 16
SYNTHETIC_ROWS = 20_000
# A replaced record changes two cells by one: the norm, and the change of an L1 error.
NORM, L1 = math.sqrt(2), 2.0

TITLES = {
    "aim": "AIM + scikit-learn",
    "dd_ssp": "DD-SSP",
    "ours": "ours",
    "constant": "constant",
    "non_private": "non-private",
}
Clique = tuple[int, ...]
Tables = dict[Clique, Array]


# --------------------------------------------------------------------------------------------------
# Tables of categories


@dataclass(frozen=True)
class Attribute:
    """Columns of `Data.rows` that are one attribute, and their values for each of its categories.

    A single column has equally spaced values.
    """

    columns: tuple[int, ...]
    values: Array

    def codes(self, rows: Array) -> Array:
        """Category of each row."""
        if len(self.columns) > 1:
            return np.asarray(rows[:, self.columns].argmax(axis=1))
        low, width = self.values[0, 0], self.values[1, 0] - self.values[0, 0]
        nearest = np.floor((rows[:, self.columns[0]] - low) / width + 0.5).astype(int)
        return np.asarray(np.clip(nearest, 0, len(self.values) - 1))


def attributes(data: _data.Data, n_bins: int) -> list[Attribute]:
    """Features and, last, the target. Whether a column is whole or one-hot is public."""
    found, start, width = [], 0, data.X.shape[1]
    while start < width:
        stop = one_hot_end(data.X, start)
        one_hot = stop > start + 1
        values = 2 * np.eye(stop - start) - 1 if one_hot else categories(data, start, n_bins)
        found.append(Attribute(tuple(range(start, stop)), values))
        start = stop
    classes = np.arange(float(data.n_classes))[:, None]
    labels = {0: centres(n_bins), 2: 2 * classes - 1}.get(data.n_classes, classes)
    return [*found, Attribute((width,), labels)]


def one_hot_end(X: Array, start: int) -> int:
    """Where columns end that are 0 or 1 with a single 1 in each row; else ``start + 1``."""
    total = np.zeros(len(X))
    for stop in range(start, X.shape[1]):
        total = total + X[:, stop]
        if not np.isin(X[:, stop], (0, 1)).all() or total.max() > 1:
            break
        if total.min() == 1:
            return stop + 1
    return start + 1


def categories(data: _data.Data, column: int, n_bins: int) -> Array:
    """Values of whole numbers if they are few, else the centres of bins."""
    low, high, x = data.lower[column], data.upper[column], data.X[:, column]
    whole = all((np.round(values) == values).all() for values in (x, low, high))
    if whole and high - low < n_bins:
        return np.linspace(-1, 1, int(high - low) + 1)[:, None]
    return centres(n_bins)


def centres(n_bins: int) -> Array:
    """Centres of equal bins of [-1, 1], as a column."""
    return np.asarray((2 * np.arange(n_bins)[:, None] + 1) / n_bins - 1)


# --------------------------------------------------------------------------------------------------
# A graphical model of cliques of one and two attributes


def along(table: Array, clique: Clique, target: Clique) -> Array:
    """A table over `clique` as one that broadcasts over `target`; both are sorted."""
    sizes = dict(zip(clique, table.shape, strict=True))
    return table.reshape([sizes.get(a, 1) for a in target])


def summed(table: Array, clique: Clique, kept: Clique) -> Array:
    """A table over `clique` summed to one over `kept`."""
    return np.asarray(table.sum(axis=tuple(i for i, a in enumerate(clique) if a not in kept)))


@dataclass(frozen=True)
class Tree:
    """Attributes in the order in which they are eliminated, each with the clique that this joins.

    The rest of the clique of an attribute is in the clique of its parent: the first of the rest
    that is eliminated, None if there is no rest.
    """

    order: tuple[int, ...]
    cliques: dict[int, Clique]
    parents: dict[int, int | None]

    def rest(self, a: int) -> Clique:
        return tuple(b for b in self.cliques[a] if b != a)

    def holder(self, clique: Clique) -> int:
        """An attribute whose clique has all of `clique`, which is an edge of the model."""
        return next(a for a in self.order if a in clique)


def make_tree(cliques: list[Clique], sizes: Array) -> Tree:
    """Greedy: the attribute with the smallest joined clique is eliminated first."""
    near: dict[int, set[int]] = {a: set() for a in range(len(sizes))}
    for a, b in (clique for clique in cliques if len(clique) == 2):
        near[a].add(b)
        near[b].add(a)
    joined: dict[int, Clique] = {}
    while near:
        a = min(near, key=lambda c: (math.prod(sizes[[c, *near[c]]]), c))
        rest = near.pop(a)
        for b in rest:
            near[b] |= rest - {b}
            near[b].discard(a)
        joined[a] = tuple(sorted({a, *rest}))
    order = tuple(joined)
    parents = {a: next((b for b in order if b in joined[a] and b != a), None) for a in order}
    return Tree(order, joined, parents)


def megabytes(tree: Tree, sizes: Array) -> float:
    return sum(math.prod(sizes[list(clique)]) for clique in tree.cliques.values()) * 8 / 2**20


def beliefs(
    tree: Tree, potentials: Tables, sizes: Array
) -> tuple[dict[int, Array], dict[int, Array]]:
    """Probabilities of each attribute's clique, and of the attribute given the rest of it."""
    tables = {a: np.zeros(sizes[list(clique)]) for a, clique in tree.cliques.items()}
    for clique, values in potentials.items():
        a = tree.holder(clique)
        tables[a] += along(values, clique, tree.cliques[a])
    conditional, joint = {}, {}
    for a in tree.order:
        axis, parent = tree.cliques[a].index(a), tree.parents[a]
        shifted = np.exp(tables[a] - tables[a].max(axis=axis, keepdims=True))
        total = shifted.sum(axis=axis, keepdims=True)
        conditional[a] = shifted / total
        if parent is not None:
            message = np.log(total) + tables[a].max(axis=axis, keepdims=True)
            tables[parent] += along(message.squeeze(axis), tree.rest(a), tree.cliques[parent])
    for a in reversed(tree.order):
        joint[a], parent, rest = conditional[a], tree.parents[a], tree.rest(a)
        if parent is not None:
            given = summed(joint[parent], tree.cliques[parent], rest)
            joint[a] = conditional[a] * along(given, rest, tree.cliques[a])
    return joint, conditional


def pairwise(tree: Tree, joint: dict[int, Array], sizes: Array) -> Tables:
    """Probabilities of all attributes and of all pairs of them."""
    edges = [(a, b) for a, b in tree.parents.items() if b is not None]
    found: Tables = {(a,): summed(joint[a], tree.cliques[a], (a,)) for a in tree.order}
    for first in tree.order:
        # Tables over `first` and the clique of each attribute that can be reached.
        front = {first: (joint[first], tree.cliques[first])}
        pending = [first]
        while pending:
            here = pending.pop()
            table, clique = front[here]
            for b in tree.cliques[here]:
                if first < b:
                    found[first, b] = summed(table, clique, (first, b))
            for child, parent in edges:
                there = parent if here == child else child
                if here not in (child, parent) or there in front:
                    continue
                rest, target = tree.rest(child), tree.cliques[there]
                through = tuple(sorted({first, *rest}))
                wide = tuple(sorted({first, *target}))
                total = along(summed(joint[there], target, rest), rest, wide)
                given = along(joint[there], target, wide) / np.maximum(total, 1e-300)
                front[there] = (along(summed(table, clique, through), through, wide) * given, wide)
                pending.append(there)
    alone = {(a, b) for a, b in itertools.combinations(range(len(sizes)), 2) if (a, b) not in found}
    return found | {(a, b): np.outer(found[a,], found[b,]) for a, b in alone}


@dataclass
class Measured:
    """Weighted means of the noisy counts of each clique, and their weights 1/variance."""

    counts: Tables
    weights: dict[Clique, float]

    def add(self, clique: Clique, counts: Array, std: float) -> None:
        old, weight = self.counts.get(clique, 0 * counts), self.weights.get(clique, 0.0)
        self.weights[clique] = weight + 1 / std**2
        self.counts[clique] = (weight * old + counts / std**2) / self.weights[clique]


def fit_model(
    measured: Measured, potentials: Tables, sizes: Array, n: int, n_steps: int
) -> tuple[Tree, Tables]:
    """Mirror descent on the weighted squared error of the counts, from given potentials."""
    tree = make_tree(list(measured.counts), sizes)
    zeros = {clique: np.zeros(counts.shape) for clique, counts in measured.counts.items()}
    potentials = zeros | potentials

    def fitted(potentials: Tables) -> tuple[float, Tables, Tables]:
        joint, _ = beliefs(tree, potentials, sizes)
        means, gradients, loss = {}, {}, 0.0
        for clique, counts in measured.counts.items():
            a = tree.holder(clique)
            means[clique] = n * summed(joint[a], tree.cliques[a], clique)
            error = means[clique] - counts
            gradients[clique] = measured.weights[clique] * error
            loss += float((gradients[clique] * error).sum()) / 2
        return loss, means, gradients

    step = 1 / (n * sum(measured.weights.values()))
    loss, means, gradients = fitted(potentials)
    stalled = 0
    for _ in range(n_steps):
        trial = {clique: values - step * gradients[clique] for clique, values in potentials.items()}
        found = fitted(trial)
        expected = sum(float((g * (means[c] - found[1][c])).sum()) for c, g in gradients.items())
        if loss - found[0] < 0.5 * expected or found[0] > loss:
            step /= 2
            continue
        stalled = stalled + 1 if loss - found[0] < 1e-5 * loss else 0
        potentials, (loss, means, gradients) = trial, found
        step *= 1.5
        if stalled == 10:
            break
    return tree, potentials


# --------------------------------------------------------------------------------------------------
# AIM


@dataclass(frozen=True)
class Model:
    """What AIM releases: a distribution of categories, as pairs and as a sampler."""

    tree: Tree
    pairs: Tables
    conditional: dict[int, Array]

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Categories of n rows."""
        codes = np.zeros((n, len(self.tree.order)), dtype=int)
        for a in reversed(self.tree.order):
            rest, axis = self.tree.rest(a), self.tree.cliques[a].index(a)
            chances = np.moveaxis(self.conditional[a], axis, -1)[tuple(codes[:, rest].T)]
            passed = np.cumsum(np.broadcast_to(chances, (n, chances.shape[-1])), axis=1)
            codes[:, a] = (rng.random((n, 1)) * passed[:, -1:] >= passed).sum(axis=1)
        return codes


def aim(codes: Array, sizes: Array, rho: float, rng: np.random.Generator) -> Model:
    """AIM for all pairs (McKenna et al. 2022, Algorithm 3): rho-zCDP under replace-one.

    A marginal with noise sigma spends NORM^2 / (2 sigma^2) of rho, an exponential mechanism of
    epsilon spends epsilon^2 / 8, as its range of privacy losses is bounded by epsilon.
    """
    n, d = codes.shape
    exact = marginals(codes, sizes)
    measured = Measured({}, {})
    potentials: Tables = {}
    rounds = ROUNDS * d
    sigma, epsilon = NORM * math.sqrt(rounds / (1.8 * rho)), math.sqrt(0.8 * rho / rounds)

    def measure(clique: Clique) -> None:
        noise = sigma * rng.standard_normal(exact[clique].shape)
        measured.add(clique, exact[clique] + noise, sigma)

    def refit(n_steps: int) -> tuple[Tree, Tables]:
        nonlocal potentials
        tree, potentials = fit_model(measured, potentials, sizes, n, n_steps)
        return tree, pairwise(tree, beliefs(tree, potentials, sizes)[0], sizes)

    for a in range(d):
        measure((a,))
    left = rho - d * NORM**2 / (2 * sigma**2)
    tree, pairs = refit(STEPS)
    while left > 0:
        spent = NORM**2 / (2 * sigma**2) + epsilon**2 / 8
        if left < 2 * spent:  # the last round takes what is left
            sigma, epsilon, spent = NORM / math.sqrt(1.8 * left), math.sqrt(0.8 * left), left
        left = left - spent if spent < left else 0.0
        bias = math.sqrt(2 / math.pi) * sigma
        scores = {
            clique: len(clique) * (np.abs(counts - n * pairs[clique]).sum() - bias * counts.size)
            for clique, counts in exact.items()
            if fits(clique, measured, tree, sizes, MODEL_SIZE * (1 - left / rho))
        }
        # A weight is the size of the clique, so that no score changes by more than 2 L1.
        noise = rng.gumbel(scale=2 * 2 * L1 / epsilon, size=len(scores))
        chosen = max(zip(np.array(list(scores.values())) + noise, scores, strict=True))[1]
        measure(chosen)
        before = pairs[chosen]
        tree, pairs = refit(STEPS)
        if n * np.abs(pairs[chosen] - before).sum() <= bias * before.size:
            sigma, epsilon = sigma / 2, 2 * epsilon
    tree, pairs = refit(LAST_STEPS)
    return Model(tree, pairs, beliefs(tree, potentials, sizes)[1])


def marginals(codes: Array, sizes: Array) -> Tables:
    """Counts of all attributes and of all pairs of them."""
    found: Tables = {}
    for k in (1, 2):
        for clique in itertools.combinations(range(len(sizes)), k):
            shape = tuple(sizes[list(clique)])
            index = np.ravel_multi_index(tuple(codes[:, clique].T), shape)
            found[clique] = np.bincount(index, minlength=math.prod(shape)).reshape(shape) * 1.0
    return found


def fits(clique: Clique, measured: Measured, tree: Tree, sizes: Array, limit: float) -> bool:
    """Whether the model stays below `limit` with this clique, or has it already."""
    if any(set(clique) <= set(held) for held in tree.cliques.values()):
        return True
    return megabytes(make_tree([*measured.counts, clique], sizes), sizes) <= limit


# --------------------------------------------------------------------------------------------------
# Learners


def from_marginals(
    data: _data.Data, train: Array, test: Array, cell: Cell, n_bins: int, rng: np.random.Generator
) -> dict[str, float]:
    """Scores of the two learners that AIM serves."""
    found = attributes(data, n_bins)
    rows, target = data.rows(), data.target()
    table = np.column_stack([rows[:, :-1], target])
    sizes = np.array([len(one.values) for one in found])
    codes = np.column_stack([one.codes(table[train]) for one in found])
    model = aim(codes, sizes, zcdp_rho(cell.epsilon, cell.delta), rng)
    drawn = model.sample(SYNTHETIC_ROWS, rng)
    synthetic = np.hstack([one.values[drawn[:, k]] for k, one in enumerate(found)])
    weight = np.full(len(drawn), len(train) / len(drawn))
    scores = {"aim": fit_synthetic(data, synthetic, weight, rows[test], target[test])}
    if data.n_classes <= 2:
        loss = "logistic" if data.n_classes else "squared"
        moment = len(train) * second_moment(found, model.pairs)
        # The column of ones is last among the rows' columns, and the target behind it.
        weights = from_statistics(moment[:-1, :-1], moment[:-1, -1], loss, 1.0)
        scores["dd_ssp"] = float(np.ravel(evaluate(rows[test], target[test], loss, weights)[0])[0])
    return scores


def second_moment(found: list[Attribute], pairs: Tables) -> Array:
    """Mean of ``a a'`` over the columns of features, then one of ones, then the target."""
    blocks = [[np.empty(0)] * len(found) for _ in found]
    for a, b in itertools.product(range(len(found)), repeat=2):
        chances = np.diag(pairs[a,]) if a == b else pairs[min(a, b), max(a, b)]
        chances = chances.T if a > b else chances
        blocks[a][b] = found[a].values.T @ chances @ found[b].values
    means = np.concatenate([pairs[a,] @ one.values for a, one in enumerate(found)])
    full = np.block([[np.block(blocks), means[:, None]], [means[None], np.ones((1, 1))]])
    order = np.array([*range(len(means) - 1), len(means), len(means) - 1])
    return np.asarray(full[order[:, None], order])


def fit_synthetic(
    data: _data.Data, synthetic: Array, weight: Array, rows: Array, target: Array
) -> float:
    """Score of scikit-learn's model of synthetic rows, with the penalty of the non-private one."""
    X, y = synthetic[:, :-1], synthetic[:, -1]
    if data.n_classes and len(np.unique(y)) == 1:
        return float((target == y[0]).mean())
    model = LogisticRegression(C=1.0, max_iter=1000) if data.n_classes else Ridge(alpha=1.0)
    return float(model.fit(X, y, sample_weight=weight).score(rows[:, :-1], target))


# --------------------------------------------------------------------------------------------------
# The table


def sampled(name: str, split: int) -> _data.Data:
    """At most `MAX_ROWS` rows, without the weight of a census record."""
    data = _data.load(name)
    rows = np.random.default_rng([split, 1]).permutation(len(data.y))[:MAX_ROWS]
    columns = [k for k in range(data.X.shape[1]) if name != "adult" or data.upper[k] != 1.5e6]
    return dataclasses.replace(
        data,
        X=data.X[rows][:, columns],
        y=data.y[rows],
        lower=data.lower[columns],
        upper=data.upper[columns],
    )


def run(name: str, split: int) -> list[dict[str, float]]:
    """Scores of all methods at each epsilon; R2 is cut off at -1."""
    data = sampled(name, split)
    train, test = indices(len(data.y), split)
    loss = {0: "squared", 2: "logistic"}.get(data.n_classes, "softmax")
    records = []
    for k, epsilon in enumerate(EPSILONS):
        cell = Cell(epsilon, DELTA, RELATION)
        scores: dict[str, float] = {}
        started = time.process_time()
        for n_bins in BINS:
            rng = np.random.default_rng([split, k, n_bins])
            found = from_marginals(data, train, test, cell, n_bins, rng)
            scores |= {f"{key} {n_bins}": value for key, value in found.items()}
        seconds = (time.process_time() - started) / len(BINS)
        scores["ours"] = fit_ours(data, indices(len(data.y), split), cell, split)[0]
        scores["constant"] = constant(data, train, test)[0]
        arguments = (data.rows(), data.target(), loss, data.n_classes, train, test)
        scores["non_private"] = non_private(*arguments)[0]
        records.append({key: max(-1.0, value) for key, value in scores.items()})
        records[-1]["seconds"] = seconds
    return records


def print_table(store: dict[str, Any]) -> None:
    """Means over splits; the better learner from marginals less ours, with a standard error."""
    print(f"Accuracy, or R2 where marked *; {RELATION}, delta {DELTA:g}; means over splits.")
    print("In brackets the number of bins. Seconds of one fit of AIM.")
    head = "".join(f"{title:>20}" for title in TITLES.values())
    print(f"{'data':15}{'n':>6}{'epsilon':>9}{head}{'marginals - ours':>20}{'seconds':>9}")
    for name, splits in store.items():
        data = sampled(name, 0)
        title, n = name + "*" * (data.n_classes == 0), len(indices(len(data.y), 0)[0])
        for k, epsilon in enumerate(EPSILONS):
            values = {key: np.array([split[k][key] for split in splits]) for key in splits[0][k]}
            best = {method: best_key(method, values) for method in TITLES}
            cells = "".join(f"{shown(best[method], values):>20}" for method in TITLES)
            learners = [values[key] for key in (best["aim"], best["dd_ssp"]) if key]
            gaps = max(learners, key=np.mean) - values["ours"]
            gap = f"{gaps.mean():+.3f} ({gaps.std(ddof=1) / math.sqrt(len(gaps)):.3f})"
            seconds = values["seconds"].mean()
            print(f"{title:15}{n:6,}{epsilon:9g}{cells}{gap:>20}{seconds:9.1f}")


def best_key(method: str, values: dict[str, Array]) -> str | None:
    """The record of a method, that of its best number of bins, or None."""
    keys = [key for key in values if key.split()[0] == method]
    return max(keys, key=lambda key: float(values[key].mean()), default=None)


def shown(key: str | None, values: dict[str, Array]) -> str:
    """A mean, and in brackets the number of bins that a key names behind the method."""
    if key is None:
        return ""
    bins = f" ({int(key.split()[1]):2})" if " " in key else ""
    return f"{values[key].mean():.3f}{bins}"


def self_check() -> None:
    """Pairs of a model are those of the table of all attributes, and its samples have them."""
    rng = np.random.default_rng(0)
    sizes = np.array([2, 3, 4, 2, 3, 2])
    everything = tuple(range(len(sizes)))
    for edges in ([(0, 1), (1, 2), (2, 3), (0, 3)], [(0, 1), (4, 5)], [(0, 5), (1, 5), (3, 4)]):
        cliques = [*edges, *((a,) for a in everything)]
        potentials = {c: 2 * rng.standard_normal(sizes[list(c)]) for c in cliques}
        full = np.exp(sum(along(p, c, everything) for c, p in potentials.items()))
        tree = make_tree(cliques, sizes)
        joint, conditional = beliefs(tree, potentials, sizes)
        pairs = pairwise(tree, joint, sizes)
        counts = marginals(Model(tree, pairs, conditional).sample(50_000, rng), sizes)
        for clique, found in pairs.items():
            expected = summed(full, everything, clique) / full.sum()
            np.testing.assert_allclose(found, expected, atol=1e-12)
            np.testing.assert_allclose(counts[clique] / 50_000, expected, atol=0.015)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", nargs="+", choices=SETS, metavar="NAME", default=SETS)
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--redraw", action="store_true", help="compute nothing")
    options = parser.parse_args()
    if options.splits < 2:
        parser.error(f"Got --splits {options.splits}, expected 2 or more.")
    store: dict[str, Any] = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    if not options.redraw:
        self_check()
        for name in tqdm(options.data):
            store[name] = [run(name, split) for split in range(options.splits)]
            OUTPUT.parent.mkdir(parents=True, exist_ok=True)
            OUTPUT.write_text(json.dumps(store, indent=1))
    print_table(store)


if __name__ == "__main__":
    main()
