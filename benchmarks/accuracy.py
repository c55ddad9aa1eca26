"""Accuracy of untuned defaults on eight data sets, compared with tuned private learners.

    python benchmarks/accuracy.py            everything, most of an hour on one core
    python benchmarks/accuracy.py --quick    two small data sets, four splits
    python benchmarks/accuracy.py --ours     the project's own columns again, the peers as they were
    python benchmarks/accuracy.py --redraw   tables, verdict and pictures of the last run

Two tuned peers: plain DP-GD with momentum (42 settings) and DP-GD in privately conditioned
coordinates (108 settings). For each data set and budget their setting is chosen on the TEST sets of
one half of the splits and reported on the other half, both ways: nobody could do that for free, so
they are a bar and not an alternative. The estimators have their defaults, and public bounds.
R2 is cut off at -1 in each split, for all alike.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import _data
import _peers
import matplotlib as mpl
import numpy as np
import threadpoolctl
from _peers import Cell
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, r2_score
from tqdm import tqdm

OUTPUT = Path(__file__).parent / "output"
# Two files, because the peers take long and do not depend on the project.
OURS, PEERS = OUTPUT / "accuracy.json", OUTPUT / "accuracy_peers.json"

EPSILONS, DELTA = (0.1, 0.3, 1.0, 3.0, 10.0), 1e-5
RELATIONS = ("zero_out", "replace_one")
LARGE, SPLITS, SPLITS_LARGE = 6_000, 50, 10
TEST_SHARE = 0.2

# Column of a table: title, and name in the records.
COLUMNS = {
    "ours": "ours",
    "conditioned": "conditioned, tuned",
    "plain": "plain, tuned",
    "objective": "objective pert.",
    "adassp": "AdaSSP",
    "constant": "constant",
    "non_private": "non-private",
}
TUNED = ("conditioned", "plain")

Array = NDArray[Any]
Record = dict[str, Any]


def cells() -> list[Cell]:
    return [Cell(epsilon, DELTA, name) for name in RELATIONS for epsilon in EPSILONS]


def n_splits(name: str, limit: int | None = None) -> int:
    full = SPLITS if len(_data.load(name).y) <= LARGE else SPLITS_LARGE
    return full if limit is None else min(full, limit)


def indices(n: int, split: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows of the training and of the test part."""
    order = np.random.default_rng(split).permutation(n)
    n_test = round(TEST_SHARE * n)
    return order[n_test:], order[:n_test]


# --------------------------------------------------------------------------------------------------
# One split


def run_ours(name: str, split: int) -> Record:
    """Scores of the project's defaults, and of its objective perturbation where there is one."""
    data = _data.load(name)
    started = time.process_time()
    parts = indices(len(data.y), split)
    columns = {"ours": [fit_ours(data, parts, cell, split) for cell in cells()]}
    exact = objective_perturbation()
    # Its inner solver passes over the data a thousand times: on large data the peer stands for it.
    if exact is not None and data.n_classes == 2 and len(data.y) <= LARGE:
        columns["objective"] = [
            fit_ours(data, parts, cell, split, algorithm=exact) for cell in cells()
        ]
    seconds = time.process_time() - started
    return {"seconds": seconds, **{key: as_lists(pairs) for key, pairs in columns.items()}}


def fit_ours(
    data: _data.Data, parts: tuple[Array, Array], cell: Cell, seed: int, **parameters: Any
) -> tuple[float, float]:
    """Accuracy or R2, and log-loss, on the test part; raw features, public bounds, defaults."""
    from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge

    train, test = parts
    public: dict[str, Any] = {
        "epsilon": cell.epsilon,
        "delta": cell.delta,
        "neighboring": cell.neighboring,
        "feature_bounds": (data.lower, data.upper),
        "random_state": seed,
        **parameters,
    }
    if not data.n_classes:
        model = DPAdmmRidge(target_bounds=data.target_bounds, **public)
        model.fit(data.X[train], data.y[train])
        return r2_score(data.y[test], model.predict(data.X[test])), 0.0
    labels = list(range(data.n_classes))
    model = DPAdmmLogisticRegression(classes=labels, **public)
    model.fit(data.X[train], data.y[train])
    loss = log_loss(data.y[test], model.predict_proba(data.X[test]), labels=labels)
    return model.score(data.X[test], data.y[test]), loss


def objective_perturbation() -> Any:
    """The project's own algorithm of that name, or None: then the peer below stands for it."""
    from skdpadmm import algorithms

    found = getattr(algorithms, "ObjectivePerturbation", None)
    return None if found is None else found()


def run_peers(name: str, split: int, *, tuned: bool = True) -> Record:
    """Scores of everything that does not depend on the project."""
    data = _data.load(name)
    started = time.process_time()
    train, test = indices(len(data.y), split)
    rows, target = data.rows(), data.target()
    loss = {0: "squared", 2: "logistic"}.get(data.n_classes, "softmax")

    def scored(weights: Array) -> Record:
        found = _peers.evaluate(rows[test], target[test], loss, weights)
        return as_lists(np.stack(found, axis=-1))

    def untuned(fit: Callable[..., Array], stream: int, *arguments: Any) -> Record:
        noise = np.random.default_rng([split, stream])
        fits = [fit(rows[train], target[train], *arguments, cell, noise) for cell in cells()]
        return scored(np.stack(fits, axis=2))

    record = {
        "constant": as_lists([constant(data, train, test)] * len(cells())),
        "non_private": as_lists(
            [non_private(rows, target, loss, data.n_classes, train, test)] * len(cells())
        ),
    }
    if loss != "softmax":
        record["objective"] = untuned(_peers.objective_perturbation, 2, loss)
    if loss == "squared":
        record["adassp"] = untuned(_peers.adassp, 3)
    if tuned:
        rng = np.random.default_rng([split, 1])
        arguments = (
            rows[train].astype(np.float32),
            target[train].astype(np.float32),
            loss,
            data.n_classes if loss == "softmax" else 1,
            cells(),
        )
        settings = _peers.plain_settings(loss)
        record["plain"] = scored(_peers.plain_gradient_descent(*arguments, settings, rng))
        grid = _peers.conditioned_settings(loss)
        record["conditioned"] = scored(_peers.conditioned_gradient_descent(*arguments, grid, rng))
    return {"seconds": time.process_time() - started, **record}


def constant(data: _data.Data, train: Array, test: Array) -> tuple[float, float]:
    """The most frequent class with the frequencies as probabilities; or the mean."""
    y, y_test = data.y[train], data.y[test]
    if not data.n_classes:
        return r2_score(y_test, np.full(len(y_test), y.mean())), 0.0
    frequencies = np.bincount(y, minlength=data.n_classes) / len(y)
    return float((y_test == frequencies.argmax()).mean()), float(
        -np.log(frequencies[y_test]).mean()
    )


def non_private(
    rows: Array, target: Array, loss: str, n_classes: int, train: Array, test: Array
) -> tuple[float, float]:
    """scikit-learn on the same scaled features, with the same penalty."""
    X = rows[:, :-1]
    if loss == "squared":
        model = Ridge(alpha=1.0).fit(X[train], target[train])
        return model.score(X[test], target[test]), 0.0
    model = LogisticRegression(C=1.0, max_iter=1000).fit(X[train], target[train])
    found = log_loss(target[test], model.predict_proba(X[test]), labels=model.classes_)
    return model.score(X[test], target[test]), found


def as_lists(pairs: Any) -> Record:
    """Metric and log-loss from an array whose last axis holds the two."""
    values = np.round(np.nan_to_num(np.asarray(pairs, float), nan=-1e9, posinf=1e9, neginf=-1e9), 5)
    return {"metric": values[..., 0].tolist(), "log_loss": values[..., 1].tolist()}


# --------------------------------------------------------------------------------------------------
# All splits, and what is kept of them


def compute(
    tasks: list[tuple[str, str, int]], jobs: int, stores: dict[str, dict[str, Any]]
) -> None:
    """Run tasks of (kind, data, split) in a pool, and keep their records in the stores."""
    if not tasks:
        return
    saved = time.monotonic()
    with ProcessPoolExecutor(jobs, initializer=one_thread) as pool:
        futures = {pool.submit(RUNS[task[0]], *task[1:]): task for task in tasks}
        for future in tqdm(as_completed(futures), total=len(tasks), unit="split", mininterval=5):
            kind, name, split = futures[future]
            stores[kind]["data"].setdefault(name, {})[str(split)] = future.result()
            if time.monotonic() - saved > 60:
                save(stores)
                saved = time.monotonic()
    save(stores)


RUNS: dict[str, Callable[[str, int], Record]] = {"ours": run_ours, "peers": run_peers}
FILES = {"ours": OURS, "peers": PEERS}


def one_thread() -> None:
    """A worker is one core: BLAS threads of several workers would fight."""
    threadpoolctl.threadpool_limits(1)
    # Bounds are public, and seeds are known: that these are simulations is no news here.
    warnings.simplefilter("ignore")


def protocol(kind: str) -> dict[str, Any]:
    """What has to agree for records of two runs to be comparable."""
    facts: dict[str, Any] = {"epsilons": list(EPSILONS), "delta": DELTA, "test": TEST_SHARE}
    if kind == "peers":
        for loss in ("logistic", "squared"):
            facts[f"plain, {loss}"] = [list(astuple(s)) for s in _peers.plain_settings(loss)]
            facts[f"conditioned, {loss}"] = [
                list(astuple(s)) for s in _peers.conditioned_settings(loss)
            ]
    return facts


def open_store(kind: str) -> dict[str, Any]:
    """Kept records, where they were made under the present protocol."""
    if FILES[kind].exists():
        store: dict[str, Any] = json.loads(FILES[kind].read_text())
        if store["protocol"] == json.loads(json.dumps(protocol(kind))):
            return store
        print(f"{FILES[kind].name} was made under another protocol: not used.")
    return {"protocol": protocol(kind), "data": {}}


def save(stores: dict[str, dict[str, Any]]) -> None:
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for kind, store in stores.items():
        draft = FILES[kind].with_suffix(".tmp")
        draft.write_text(json.dumps(store))
        draft.replace(FILES[kind])


# --------------------------------------------------------------------------------------------------
# Cells: means over splits


@dataclass(frozen=True)
class Row:
    """One data set at one budget: a mean over splits for each column that there is."""

    data: str
    cell: Cell
    is_regression: bool
    n_splits: int
    metric: dict[str, float]
    log_loss: dict[str, float]
    # Standard error of the difference of ours to the better tuned peer, over paired splits.
    error: float

    @property
    def better(self) -> float:
        return max(self.metric[name] for name in TUNED)

    @property
    def difference(self) -> float:
        return self.metric["ours"] - self.better if "ours" in self.metric else math.nan


def summarise(
    names: Iterable[str], limit: int | None, stores: dict[str, dict[str, Any]]
) -> list[Row]:
    """One row for each data set and cell, from the splits that all stores have."""
    found = []
    for name in names:
        peers = stores["peers"]["data"].get(name, {})
        ours = stores["ours"]["data"].get(name, {})
        wanted = [str(k) for k in range(n_splits(name, limit))]
        both = [k for k in wanted if k in peers and k in ours]
        splits = both or [k for k in wanted if k in peers]
        if len(splits) < 2:
            continue
        # The project's own columns stand for a peer's of the same name.
        records = [{**peers[k], **(ours[k] if both else {})} for k in splits]
        found += [summarise_cell(name, j, cell, records) for j, cell in enumerate(cells())]
    return found


def summarise_cell(name: str, j: int, cell: Cell, records: list[Record]) -> Row:
    """The j-th cell of a data set; the two tuned columns are cross-fitted."""
    metric, loss = {}, {}
    for key in COLUMNS:
        if key in records[0]:
            scores = np.array([record[key]["metric"][j] for record in records])
            losses = np.array([record[key]["log_loss"][j] for record in records])
            scores = np.maximum(scores, -1)
            if key in TUNED:
                chosen = cross_fitted_choice(scores)
                each = np.arange(len(records))
                scores, losses = scores[each, chosen], losses[each, chosen]
            metric[key], loss[key] = scores, losses
    error = math.nan
    if "ours" in metric:
        better = max(TUNED, key=lambda key: metric[key].mean())
        error = float(np.std(metric["ours"] - metric[better], ddof=1) / math.sqrt(len(records)))
    return Row(
        data=name,
        cell=cell,
        is_regression=_data.load(name).n_classes == 0,
        n_splits=len(records),
        metric={key: float(values.mean()) for key, values in metric.items()},
        log_loss={key: float(values.mean()) for key, values in loss.items()},
        error=error,
    )


def cross_fitted_choice(scores: Array) -> NDArray[np.intp]:
    """For each split the setting that is best on the mean of the other half of the splits."""
    half = np.arange(len(scores)) % 2
    best = [scores[half == 1].mean(axis=0).argmax(), scores[half == 0].mean(axis=0).argmax()]
    return np.array(best)[half]


# --------------------------------------------------------------------------------------------------
# What is printed and drawn


def print_table(rows: list[Row], relation: str) -> None:
    rows = [row for row in rows if row.cell.neighboring == relation]
    print(f"\n{relation}: accuracy, or R2 where marked; means over splits, delta {DELTA:g}")
    titles = "".join(f"{title:>20}" for title in COLUMNS.values())
    print(f"{'data':16}{'splits':>8}{'epsilon':>8}{titles}{'ours - better tuned':>22}")
    for k, row in enumerate(rows):
        is_first = k == 0 or rows[k - 1].data != row.data
        title = row.data + (" (R2)" if row.is_regression else "") if is_first else ""
        figures = "".join(
            f"{row.metric[key]:20.3f}" if key in row.metric else f"{'':>20}" for key in COLUMNS
        )
        gap = f"{row.difference:+14.3f} ± {row.error:.3f}" if "ours" in row.metric else ""
        print(f"{title:20}{row.n_splits:4}{row.cell.epsilon:8g}{figures}{gap}")


def print_log_loss(rows: list[Row], relation: str) -> None:
    rows = [row for row in rows if row.cell.neighboring == relation and not row.is_regression]
    if not rows:
        return
    keys = [key for key in COLUMNS if key != "adassp"]
    print(f"\n{relation}: log-loss (the peers' probabilities are not corrected for clipping)")
    print(f"{'data':16}{'epsilon':>8}{''.join(f'{COLUMNS[key]:>20}' for key in keys)}")
    for k, row in enumerate(rows):
        title = row.data if k == 0 or rows[k - 1].data != row.data else ""
        figures = "".join(
            f"{row.log_loss[key]:20.3f}" if key in row.log_loss else f"{'':>20}" for key in keys
        )
        print(f"{title:20}{row.cell.epsilon:4g}{figures}")


def print_verdict(rows: list[Row], relation: str) -> None:
    """Each bar beside its figure."""
    rows = [row for row in rows if row.cell.neighboring == relation and "ours" in row.metric]
    if not rows:
        return
    n_cells = len(_data.LOADERS) * len(EPSILONS)
    is_whole = len(rows) == n_cells and all(row.n_splits == n_splits(row.data) for row in rows)
    warning = "" if is_whole else "; NOT THE WHOLE BENCHMARK: fewer cells or splits"
    print(f"\n{relation}: verdict over {len(rows)} of {n_cells} cells{warning}")
    kinds = {
        "accuracy": [row for row in rows if not row.is_regression],
        "R2": [row for row in rows if row.is_regression],
    }
    for (kind, chosen), bar in zip(kinds.items(), (-0.006, -0.02), strict=True):
        if not chosen:
            continue
        mean = float(np.mean([row.difference for row in chosen]))
        line(f"mean {kind}, ours - better tuned", mean, bar, mean >= bar)
        for key in ("plain", "conditioned"):
            gap = float(np.mean([row.metric["ours"] - row.metric[key] for row in chosen]))
            line(f"mean {kind}, ours - {COLUMNS[key]}", gap, 0.0, gap > 0, key == "conditioned")
    worst = min(rows, key=lambda row: row.difference)
    name = f"worst cell ({worst.data}, epsilon {worst.cell.epsilon:g})"
    line(name, worst.difference, -0.05, worst.difference >= -0.05)
    if kinds["accuracy"]:
        excess = [row.log_loss["ours"] - row.log_loss["constant"] for row in kinds["accuracy"]]
        count = sum(value > 0 for value in excess)
        line("cells with log-loss above the constant's", count, 0, count == 0)
        most = kinds["accuracy"][int(np.argmax(excess))]
        print(f"  worst excess {max(excess):+.4f} ({most.data}, epsilon {most.cell.epsilon:g})")


def line(name: str, figure: float, bar: float, passed: bool, is_goal: bool = False) -> None:
    verdict = ("PASS" if passed else "MISS") + (" (goal)" if is_goal else "")
    print(f"  {name:52} {figure:+9.4f}   bar {bar:+7.3f}   {verdict}")


def print_seconds(stores: dict[str, dict[str, Any]], names: Iterable[str]) -> None:
    print("\nseconds of one core: data, splits, ours, peers")
    for name in names:
        spent = [
            [record["seconds"] for record in stores[kind]["data"].get(name, {}).values()]
            for kind in ("ours", "peers")
        ]
        print(f"  {name:16} {max(map(len, spent)):4} {sum(spent[0]):8.0f} {sum(spent[1]):8.0f}")


def draw(rows: list[Row], name: str) -> Path:
    """Accuracy or R2 against epsilon, a panel for each relation."""
    fig, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True, layout="constrained")
    styles: dict[str, dict[str, Any]] = {
        "ours": {"color": "C3", "marker": "o", "linewidth": 2.5, "zorder": 5},
        "conditioned": {"color": "C0", "marker": "s"},
        "plain": {"color": "C1", "marker": "^"},
        "objective": {"color": "C2", "marker": "v"},
        "adassp": {"color": "C4", "marker": "d"},
        "constant": {"color": "0.6", "linestyle": ":"},
        "non_private": {"color": "black", "linestyle": "--"},
    }
    least = min(row.metric["constant"] for row in rows)
    for axis, relation in zip(axes, RELATIONS, strict=True):
        chosen = [row for row in rows if row.cell.neighboring == relation]
        for key, style in styles.items():
            if key in chosen[0].metric:
                axis.plot(
                    [row.cell.epsilon for row in chosen],
                    [row.metric[key] for row in chosen],
                    label=COLUMNS[key],
                    markersize=4,
                    **style,
                )
        axis.set_xscale("log")
        axis.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axis.minorticks_off()
        axis.set_xlabel("epsilon")
        axis.set_title(relation.replace("_", " "), fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    top = max(value for row in rows for value in row.metric.values())
    # What falls far below the constant model is cut off: it would flatten the rest.
    axes[0].set_ylim(least - 0.15 * (top - least), top + 0.05 * (top - least))
    axes[0].set_ylabel("R2" if rows[0].is_regression else "accuracy")
    axes[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    fig.suptitle(f"{name}, mean of {rows[0].n_splits} splits, delta {DELTA:g}", fontsize=10)
    path = OUTPUT / f"accuracy_{name}.png"
    OUTPUT.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=120)
    plt.close(fig)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", nargs="+", choices=list(_data.LOADERS), metavar="NAME")
    parser.add_argument("--splits", type=int, help="at most so many of each data set, 2 or more")
    parser.add_argument("--jobs", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--quick", action="store_true", help="two small data sets, four splits")
    parser.add_argument("--ours", action="store_true", help="only the project's own columns")
    parser.add_argument("--peers", action="store_true", help="only the peers")
    parser.add_argument("--resume", action="store_true", help="only splits that are not kept yet")
    parser.add_argument("--redraw", action="store_true", help="compute nothing")
    parser.add_argument("--self-check", action="store_true", help="the peers against slow loops")
    options = parser.parse_args()
    if options.self_check:
        _peers.self_check()
        print("The peers agree with the slow loops.")
        return
    if options.splits is not None and options.splits < 2:
        parser.error(
            f"Got --splits {options.splits}, expected 2 or more. Cross-fitting halves them."
        )
    mpl.use("Agg")
    small = ["breast_cancer", "diabetes"]
    names = options.data or (small if options.quick else list(_data.LOADERS))
    limit = options.splits or (4 if options.quick else None)
    stores = {kind: open_store(kind) for kind in FILES}
    kinds = ["ours"] * (not options.peers) + ["peers"] * (not options.ours)
    tasks = [
        (kind, name, split)
        for name in names
        for kind in kinds
        for split in range(n_splits(name, limit))
        if not (options.resume and str(split) in stores[kind]["data"].get(name, {}))
    ]
    if not options.redraw:
        if "peers" in kinds:
            _peers.self_check()
        # What this run does not compute is not written, so that two runs can share the files.
        compute(tasks, options.jobs, {kind: stores[kind] for kind in kinds})
    rows = summarise(names, limit, stores)
    if not rows:
        parser.error(f"Got no records in {OUTPUT}, expected some. Run without --redraw first.")
    for relation in RELATIONS:
        print_table(rows, relation)
        print_log_loss(rows, relation)
    for relation in RELATIONS:
        print_verdict(rows, relation)
    print_seconds(stores, names)
    print()
    for name in dict.fromkeys(row.data for row in rows):
        print(f"Wrote {draw([row for row in rows if row.data == name], name)}")


if __name__ == "__main__":
    main()
