"""Consistency of the defaults: private fits beside the same fits without privacy, as noise falls.

    python benchmarks/consistency.py            designs, tables and a picture; one core
    python benchmarks/consistency.py --quick    few designs, small tables, one seed

An exact fit is that of the same estimator with ``epsilon=inf``, on the same rows. Every estimator
has its defaults, public bounds of columns, and the relation replace-one.

- "slope": of private scores, regressed on exact ones. 1 if coefficients have the right size.
- "mean": difference, private minus exact, of the mean probability of a class. With three classes
  or more it is that of the class where it is largest.
- "log-loss", "R2": private minus exact, on the rows of the fit.

Designs have 20,000 drawn rows of 1, 3 or 10 columns; their scores have weights of both signs, and a
mean of .3. Tables are those of the half that rules were developed on (see `_data.judged`), with all
of their rows. Numbers are means over seeds, of signed differences: an error that more budget does
not remove stays. The signal is n mu / (c p), with p parameters and c = 2.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import _data
import matplotlib as mpl
import numpy as np
import threadpoolctl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from numpy.typing import NDArray
from sklearn.metrics import log_loss

from skdpadmm import (
    DPAdmmLinearSVC,
    DPAdmmLogisticRegression,
    DPAdmmRidge,
    DPDecentralizedClassifier,
    DPDecentralizedRegressor,
    DPFedLogisticRegression,
    DPFedRidge,
)
from skdpadmm.privacy import gaussian_mu

OUTPUT = Path(__file__).parent / "output" / "consistency.png"
DELTA, FACTOR = 1e-5, 2.0
N_ROWS, N_SEEDS = 20_000, 3
N_COLUMNS = (1, 3, 10)
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
# Of families other than the first, whose lines are means over all designs and need one seed.
FEW_EPSILONS = (0.1, 1.0, 10.0, 1000.0)
TABLE_EPSILONS = (1.0, 3.0, 10.0, 1000.0)
PREVALENCES = (0.3, 0.5, 0.1, 0.2, 0.6, 0.05, 0.4, 0.03)
# What each measure may be off by where there is next to no noise.
LARGEST = 1000.0
BARS = {"slope": 0.02, "mean": 0.005, "log-loss": 0.002, "R2": 0.005}
# Weights count in standard deviations of columns, or in these where columns vary less.
LEAST_SPREAD = 0.25

MEASURES = ("slope", "mean", "log-loss")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Family:
    """An estimator, and the number of classes of the designs that it is measured on."""

    estimator: Any
    n_classes: int = 2


FAMILIES = {
    "logistic": Family(DPAdmmLogisticRegression),
    "three classes": Family(DPAdmmLogisticRegression, 3),
    "SVC": Family(DPAdmmLinearSVC),
    "server": Family(DPFedLogisticRegression),
    "graph": Family(DPDecentralizedClassifier),
}
# Of tables: estimators of classes and of numbers, and their budgets.
TABLE_FAMILIES = {
    "curator": (DPAdmmLogisticRegression, DPAdmmRidge, TABLE_EPSILONS),
    "server": (DPFedLogisticRegression, DPFedRidge, (LARGEST,)),
    "graph": (DPDecentralizedClassifier, DPDecentralizedRegressor, (LARGEST,)),
}


@dataclass(frozen=True)
class Rows:
    """Rows to fit, and what is public of them: bounds, and classes or the target's range."""

    name: str
    X: Array
    y: NDArray[Any]
    public: dict[str, Any]

    @property
    def n_classes(self) -> int:
        """0 for a number."""
        return len(self.public.get("classes", ()))

    def signal(self, epsilon: float) -> float:
        p = (self.X.shape[1] + 1) * (self.n_classes if self.n_classes > 2 else 1)
        return len(self.y) * gaussian_mu(epsilon, DELTA) / (FACTOR * p)


@dataclass(frozen=True)
class Cell:
    """Measures of one family on some rows at one budget."""

    rows: str
    family: str
    epsilon: float
    signal: float
    measures: dict[str, float]

    @property
    def misses(self) -> dict[str, float]:
        """What is off by more than it may be."""
        off = {name: value - (name == "slope") for name, value in self.measures.items()}
        return {name: value for name, value in off.items() if abs(value) > BARS[name]}


# --------------------------------------------------------------------------------------------------
# Rows


def uniform(k: int, rng: np.random.Generator) -> Array:
    return rng.uniform(-1, 1, (N_ROWS, k))


def signs(k: int, rng: np.random.Generator) -> Array:
    return rng.choice([-1.0, 1.0], (N_ROWS, k))


def indicators(k: int, rng: np.random.Generator) -> Array:
    return np.asarray(rng.random((N_ROWS, k)) < np.resize(PREVALENCES, k), float)


def rare(k: int, rng: np.random.Generator) -> Array:
    return np.asarray(rng.random((N_ROWS, k)) < np.resize([0.03, 0.06, 0.1], k), float)


def off_centre(k: int, rng: np.random.Generator) -> Array:
    return rng.uniform(0.8, 1, (N_ROWS, k))


def clipped_normal(k: int, rng: np.random.Generator) -> Array:
    return np.clip(rng.standard_normal((N_ROWS, k)) / 3, -1, 1)


def mixed(k: int, rng: np.random.Generator) -> Array:
    """Uniform columns and, in turn, -1 and 1 of which 30 % are 1."""
    X = rng.uniform(-1, 1, (N_ROWS, k))
    X[:, 1::2] = np.where(X[:, 1::2] > 0.4, 1.0, -1.0)
    return X


# Columns, and their bounds.
KINDS: dict[str, tuple[Callable[[int, np.random.Generator], Array], tuple[int, int]]] = {
    "uniform": (uniform, (-1, 1)),
    "-1/1": (signs, (-1, 1)),
    "0/1": (indicators, (0, 1)),
    "rare 0/1": (rare, (0, 1)),
    "off-centre": (off_centre, (-1, 1)),
    "normal": (clipped_normal, (-1, 1)),
    "mixed": (mixed, (-1, 1)),
}


def design(kind: str, k: int, n_classes: int) -> Rows:
    """Rows of a kind, and classes that follow a logistic or a softmax model of their scores."""
    rng = np.random.default_rng([k, *kind.encode()])
    make, bounds = KINDS[kind]
    X = make(k, rng)
    spread = max(X.std(axis=0).mean(), LEAST_SPREAD)
    scores = (X - X.mean(axis=0)) @ np.linspace(1.1, -0.7, k) / (spread * np.sqrt(k)) + 0.3
    all_scores = np.stack([np.zeros(N_ROWS), scores, 0.5 - 0.5 * scores][:n_classes])
    y = np.argmax(all_scores + rng.gumbel(size=all_scores.shape), axis=0)
    public = {"feature_bounds": bounds, "classes": list(range(n_classes))}
    return Rows(f"{kind}, {k}", X, y, public)


def designs(kinds: Sequence[str], columns: Sequence[int], n_classes: int) -> Iterator[Rows]:
    for kind in kinds:
        for k in columns:
            if not (kind == "mixed" and k == 1):
                yield design(kind, k, n_classes)


def table(name: str) -> Rows:
    """All rows of a development table, cut off at their bounds: exact fits do not do that."""
    data = _data.load(name)
    X = np.clip(data.X, data.lower, data.upper)
    public: dict[str, Any] = {"feature_bounds": (data.lower, data.upper)}
    if data.n_classes:
        return Rows(name, X, data.y, public | {"classes": list(range(data.n_classes))})
    y = np.clip(data.y, *(data.target_bounds or (None, None)))
    return Rows(name, X, y, public | {"target_bounds": data.target_bounds})


# --------------------------------------------------------------------------------------------------
# Measures


def centred_scores(model: Any, X: Array) -> Array:
    """Scores of classes without what is common to all rows, or to all classes of a row."""
    scores = X @ np.atleast_2d(model.coef_).T
    if scores.shape[1] > 1:
        scores -= scores.mean(axis=1, keepdims=True)
    return np.asarray(scores - scores.mean(axis=0))


def compare(private: Any, exact: Any, rows: Rows) -> dict[str, float]:
    """Measures of a private model beside the exact one, as far as both have them."""
    if not rows.n_classes:
        return {"R2": private.score(rows.X, rows.y) - exact.score(rows.X, rows.y)}
    ours, reference = (centred_scores(model, rows.X) for model in (private, exact))
    found = {"slope": float(np.vdot(ours, reference) / np.vdot(reference, reference))}
    if not hasattr(private, "predict_proba"):
        return found
    labels = rows.public["classes"]
    chances = [model.predict_proba(rows.X) for model in (private, exact)]
    means = chances[0].mean(axis=0) - chances[1].mean(axis=0)
    losses = [log_loss(rows.y, each, labels=labels) for each in chances]
    largest = 1 if rows.n_classes == 2 else np.argmax(np.abs(means))
    return found | {"mean": float(means[largest]), "log-loss": losses[0] - losses[1]}


def cells(
    rows: Rows, family: str, make: Any, epsilons: Sequence[float], n_seeds: int
) -> list[Cell]:
    """One for each budget, means over seeds."""
    exact = make(epsilon=np.inf, delta=DELTA, **rows.public).fit(rows.X, rows.y)
    found = []
    for epsilon in epsilons:
        each = []
        for seed in range(n_seeds):
            model = make(epsilon=epsilon, delta=DELTA, random_state=seed, **rows.public)
            each.append(compare(model.fit(rows.X, rows.y), exact, rows))
        means = {name: float(np.mean([one[name] for one in each])) for name in each[0]}
        found.append(Cell(rows.name, family, epsilon, rows.signal(epsilon), means))
    return found


# --------------------------------------------------------------------------------------------------
# What is printed and drawn


def line(cells_of_row: list[Cell], names: Sequence[str]) -> None:
    """The signal at the last budget, and measures of each, with a star if the last is off."""
    texts = []
    for cell in cells_of_row:
        values = (f"{cell.measures[n]:7.3f}" if n in cell.measures else f"{'':7}" for n in names)
        star = "*" if cell.epsilon == LARGEST and set(cell.misses) & set(names) else " "
        texts.append("".join(values) + star)
    first, last = cells_of_row[0], cells_of_row[-1]
    print(f"{first.rows:15}{first.family:14}{last.signal:9.0f} " + " ".join(texts), flush=True)


def heading(title: str, epsilons: Sequence[float], names: Sequence[str]) -> None:
    print(f"\n{title}: " + ", ".join(names))
    width = 7 * len(names) + 1
    budgets = " ".join(f"{f'eps {epsilon:g}':>{width - 1}} " for epsilon in epsilons)
    print(f"{'rows':15}{'family':14}{'signal':>9} {budgets}")


def measure_designs(quick: bool) -> list[Cell]:
    kinds, columns = (["uniform", "0/1"], (1, 3)) if quick else (list(KINDS), N_COLUMNS)
    found: list[Cell] = []
    for family, known in FAMILIES.items():
        epsilons, n_seeds = (EPSILONS, N_SEEDS) if family == "logistic" else (FEW_EPSILONS, 1)
        if quick:
            epsilons, n_seeds = (1.0, LARGEST), 1
        heading("Designs", epsilons, MEASURES)
        for rows in designs(kinds, columns, known.n_classes):
            row = cells(rows, family, known.estimator, epsilons, n_seeds)
            line(row, MEASURES)
            found += row
    return found


def measure_tables(quick: bool) -> list[Cell]:
    chosen = ["breast_cancer", "pima", "hitters", "carseats"] if quick else _data.NAMES
    tables = [table(name) for name in chosen if not _data.judged(name)]
    found: list[Cell] = []
    for family, (*estimators, epsilons) in TABLE_FAMILIES.items():
        n_seeds = N_SEEDS if family == "curator" and not quick else 1
        for is_number, make in enumerate(estimators):
            # Coefficients of tables that separate their classes have no size to compare.
            names = ("R2",) if is_number else ("mean", "log-loss")
            heading("Tables of numbers" if is_number else "Tables of classes", epsilons, names)
            for rows in tables:
                if bool(is_number) == (rows.n_classes == 0):
                    row = cells(rows, family, make, epsilons, n_seeds)
                    row = [replace(c, measures={n: c.measures[n] for n in names}) for c in row]
                    line(row, names)
                    found += row
    return found


def print_summary(title: str, found: list[Cell]) -> None:
    """Median and largest error of each family and budget; cells that are off at the last."""
    print(f"\n{title}: median size of the errors, and the largest")
    for family in dict.fromkeys(cell.family for cell in found):
        for epsilon in sorted({cell.epsilon for cell in found if cell.family == family}):
            same = [cell for cell in found if (cell.family, cell.epsilon) == (family, epsilon)]
            texts = []
            for name in BARS:
                values = [c.measures[name] for c in same if name in c.measures]
                off = np.abs(np.array(values) - (name == "slope"))
                if values:
                    texts.append(f"{name} {np.median(off):.4f} {off.max():.4f}")
            print(f"{family:14}eps {epsilon:<7g}" + "   ".join(texts))
    last = [cell for cell in found if cell.epsilon == LARGEST]
    off_cells = [cell for cell in last if cell.misses]
    print(f"{title}: {len(off_cells)} of {len(last)} cells are off at epsilon {LARGEST:g}")
    for cell in off_cells:
        misses = ", ".join(f"{name} {value:+.4f}" for name, value in cell.misses.items())
        print(f"  {cell.rows:15}{cell.family:14}signal {cell.signal:9.1f}  {misses}")


def draw(drawn: list[Cell], tables: list[Cell]) -> None:
    """Designs above, tables below: each measure against the signal."""
    mpl.use("Agg")
    fig, axes = plt.subplots(2, 3, figsize=(11, 6), layout="constrained")
    for axis, name in zip(axes[0], ("slope", "mean", "log-loss"), strict=True):
        for kind in KINDS:
            same = [cell for cell in drawn if cell.rows.startswith(f"{kind},")]
            scatter(axis, [cell for cell in same if cell.family == "logistic"], name, kind)
        for style, family in zip(("-", "--", ":", "-."), list(FAMILIES)[1:], strict=True):
            plot_means(axis, [cell for cell in drawn if cell.family == family], name, style)
        finish(axis, name, "designs")
    for axis, name in zip(axes[1], ("mean", "log-loss", "R2"), strict=True):
        for family in TABLE_FAMILIES:
            scatter(axis, [cell for cell in tables if cell.family == family], name, family)
        finish(axis, name, "development tables")
    for axis in axes[:, 0]:
        axis.legend(frameon=False, fontsize=7, ncols=2)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(OUTPUT, dpi=120)
    plt.close(fig)
    print(f"\nWrote {OUTPUT}")


def scatter(axis: Axes, found: list[Cell], name: str, label: str) -> None:
    """A point for each cell that has the measure."""
    points = [(cell.signal, cell.measures[name]) for cell in found if name in cell.measures]
    if points:
        axis.plot(*np.transpose(points), "o", markersize=3, label=label)


def plot_means(axis: Axes, found: list[Cell], name: str, style: str) -> None:
    """A line through the means of each budget."""
    found = [cell for cell in found if name in cell.measures]
    groups = [[c for c in found if c.epsilon == e] for e in sorted({c.epsilon for c in found})]
    at = [np.exp(np.mean([np.log(cell.signal) for cell in group])) for group in groups]
    means = [np.mean([cell.measures[name] for cell in group]) for group in groups]
    if groups:
        axis.plot(at, means, color="0.3", linestyle=style, label=found[0].family)


def finish(axis: Axes, name: str, title: str) -> None:
    """Scales, labels, and a band of what a measure may be off by where there is no noise."""
    exact = float(name == "slope")
    axis.axhspan(exact - BARS[name], exact + BARS[name], color="0.9", zorder=0)
    axis.set_xscale("log")
    if not exact:
        # Linear inside of the band, and logarithmic beyond it.
        axis.set_yscale("symlog", linthresh=BARS[name])
    axis.set_xlabel("signal n mu / (c p)")
    what = "mean probability" if name == "mean" else name
    axis.set_ylabel(what + (", private on exact" if exact else ", private - exact"))
    axis.set_title(title, loc="left", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few designs, small tables")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    with threadpoolctl.threadpool_limits(1):
        drawn = measure_designs(options.quick)
        tables = measure_tables(options.quick)
    print_summary("Designs", drawn)
    print_summary("Tables", tables)
    draw(drawn, tables)
    print(f"{time.perf_counter() - started:.0f} seconds")


if __name__ == "__main__":
    main()
