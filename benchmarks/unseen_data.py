"""Untuned defaults beside published private learners on 59 data sets, half of them unseen.

    python benchmarks/unseen_data.py                       everything, an hour on one core
    python benchmarks/unseen_data.py --half development    the half that rules were developed on
    python benchmarks/unseen_data.py --ours                the project's columns again, peers kept
    python benchmarks/unseen_data.py --redraw              tables and picture of the last run

At most 5,000 rows train, so that signals differ. "Tuned DP-GD" is the best of 150 settings of
`_peers`, chosen on the TEST sets of one half of the splits and reported on the other: a bar, not an
alternative. Published learners are those of `_peers` and `_published`, with the settings named
there. Data sets of the judged half appear in means and counts alone (see `_data.judged`). The
signal is s = n mu / (c p) with p parameters and c = 2 under replace-one. R2 is cut off at -1.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _data
import _peers
import _published
import accuracy
import matplotlib as mpl
import numpy as np
from _peers import Cell
from accuracy import EPSILONS, RELATIONS, Record, as_lists, cells
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from tqdm import tqdm

OUTPUT = Path(__file__).parent / "output"
FILES = {kind: OUTPUT / f"unseen_data_{kind}.json" for kind in ("ours", "peers")}

TRAIN, TEST, SPLITS = 5_000, 10_000, 6
TUNED = ("plain", "conditioned")
PUBLISHED = {
    "objective": "objective pert.",
    "adassp": "AdaSSP",
    **{name: peer.title for name, peer in _published.PEERS.items()},
}
COLUMNS = {
    "ours": "ours",
    **PUBLISHED,
    "tuned": "tuned DP-GD",
    "constant": "constant",
    "non_private": "not private",
}
# Bands of the signal s.
BANDS = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, np.inf)

Array = NDArray[Any]


def parts(name: str, split: int) -> tuple[Array, Array]:
    """Rows of the training and of the test part."""
    train, test = accuracy.indices(len(_data.load(name).y), split)
    return train[:TRAIN], test[:TEST]


def run_ours(name: str, split: int) -> Record:
    """Scores of the project's defaults."""
    data, chosen = _data.load(name), parts(name, split)
    return {"ours": as_lists([accuracy.fit_ours(data, chosen, cell, split) for cell in cells()])}


def run_peers(name: str, split: int) -> Record:
    """Scores of all others."""
    data, (train, test) = _data.load(name), parts(name, split)
    rows, target = data.rows(), data.target()
    loss = {0: "squared", 2: "logistic"}.get(data.n_classes, "softmax")
    n_outputs = data.n_classes if loss == "softmax" else 1
    noise = np.random.default_rng([split, 2])

    def scored(weights: Array) -> Record:
        found = _peers.evaluate(rows[test], target[test], loss, weights)
        return as_lists(np.stack(found, axis=-1))

    def untuned(fit: Callable[[Cell], Array]) -> Record:
        return scored(np.stack([fit(cell) for cell in cells()], axis=2))

    X, y = rows[train], target[train]
    fits: dict[str, Callable[[Cell], Array]] = {
        name: lambda cell, fit=peer.function: fit(X, y, loss, n_outputs, cell, noise)
        for name, peer in _published.PEERS.items()
        if loss in peer.losses
    }
    if loss != "softmax":
        fits["objective"] = lambda cell: _peers.objective_perturbation(X, y, loss, cell, noise)
    if loss == "squared":
        fits["adassp"] = lambda cell: _peers.adassp(X, y, cell, noise)
    exact = accuracy.non_private(rows, target, loss, data.n_classes, train, test)
    common = (X.astype(np.float32), y.astype(np.float32), loss, n_outputs, cells())
    plain, conditioned = _peers.plain_settings(loss), _peers.conditioned_settings(loss)
    return {
        **{name: untuned(fit) for name, fit in fits.items()},
        "plain": scored(_peers.plain_gradient_descent(*common, plain, noise)),
        "conditioned": scored(_peers.conditioned_gradient_descent(*common, conditioned, noise)),
        "constant": as_lists([accuracy.constant(data, train, test)] * len(cells())),
        "non_private": as_lists([exact] * len(cells())),
    }


RUNS: dict[str, Callable[[str, int], Record]] = {"ours": run_ours, "peers": run_peers}


def compute(tasks: list[tuple[str, str, int]], jobs: int, stores: dict[str, Record]) -> None:
    """Run tasks of (kind, data, split) in a pool, and keep their records."""
    saved = time.monotonic()
    with ProcessPoolExecutor(jobs, initializer=accuracy.one_thread) as pool:
        futures = {pool.submit(RUNS[task[0]], *task[1:]): task for task in tasks}
        for future in tqdm(as_completed(futures), total=len(tasks), unit="split", mininterval=5):
            kind, name, split = futures[future]
            stores[kind].setdefault(name, {})[str(split)] = future.result()
            if time.monotonic() - saved > 60:
                save(stores)
                saved = time.monotonic()
    save(stores)


def save(stores: dict[str, Record]) -> None:
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for kind, store in stores.items():
        draft = FILES[kind].with_suffix(".tmp")
        draft.write_text(json.dumps(store))
        draft.replace(FILES[kind])


# --------------------------------------------------------------------------------------------------
# Cells


@dataclass(frozen=True)
class Row:
    """One data set at one budget: scores of each split for each column that there is."""

    data: str
    cell: Cell
    signal: float
    metric: dict[str, Array]
    log_loss: dict[str, Array]

    @property
    def is_regression(self) -> bool:
        return _data.load(self.data).n_classes == 0

    def mean(self, column: str) -> float:
        return float(self.metric[column].mean())

    @property
    def best_published(self) -> float:
        return max((self.mean(name) for name in PUBLISHED if name in self.metric), default=np.nan)

    @property
    def is_below_constant(self) -> bool:
        """By more than two standard errors of the mean over splits."""
        loss = self.metric["constant"] - self.metric["ours"]
        return bool(loss.mean() > 2 * loss.std(ddof=1) / np.sqrt(len(loss)))


def rows_of(names: list[str], n_splits: int, stores: dict[str, Record]) -> list[Row]:
    """All cells of the data sets that have records of two splits or more."""
    found = []
    for name in names:
        ours, peers = (stores[kind].get(name, {}) for kind in ("ours", "peers"))
        splits = [key for key in map(str, range(n_splits)) if key in ours and key in peers]
        if len(splits) < 2:
            continue
        records = [{**peers[key], **ours[key]} for key in splits]
        found += [row_of(name, j, cell, records) for j, cell in enumerate(cells())]
    return found


def row_of(name: str, j: int, cell: Cell, records: list[Record]) -> Row:
    """The j-th cell of a data set."""
    scores = {
        field: {key: np.array([record[key][field][j] for record in records]) for key in records[0]}
        for field in ("metric", "log_loss")
    }
    metric = {key: np.maximum(values, -1) for key, values in scores["metric"].items()}
    tuned = np.hstack([metric.pop(key) for key in TUNED])
    losses = np.hstack([scores["log_loss"].pop(key) for key in TUNED])
    each, chosen = np.arange(len(records)), accuracy.cross_fitted_choice(tuned)
    data = _data.load(name)
    n, p = len(parts(name, 0)[0]), data.X.shape[1] + 1
    p *= data.n_classes if data.n_classes > 2 else 1
    return Row(
        data=name,
        cell=cell,
        signal=n * cell.mu / (cell.factor * p),
        metric={**metric, "tuned": tuned[each, chosen]},
        log_loss={**scores["log_loss"], "tuned": losses[each, chosen]},
    )


# --------------------------------------------------------------------------------------------------
# What is printed and drawn


def mean(rows: list[Row], column: str) -> float:
    """Over the cells that have the column."""
    values = [row.mean(column) for row in rows if column in row.metric]
    return float(np.mean(values)) if values else np.nan


def print_means(rows: list[Row], title: str, groups: dict[str, list[Row]]) -> None:
    """A line for each group; peers that do not cover all cells are compared on those they cover."""
    keys = [key for key in COLUMNS if any(key in row.metric for row in rows)]
    print(f"\n{title}")
    print(f"{'':12}{'cells':>6}" + "".join(f"{COLUMNS[key]:>22}" for key in keys))
    for label, chosen in groups.items():
        texts = []
        for key in keys:
            covered = [row for row in chosen if key in row.metric]
            text = f"{mean(covered, key):.3f}" if covered else ""
            if covered and len(covered) < len(chosen):
                text += f" (ours {mean(covered, 'ours'):.3f})"
            texts.append(f"{text:>22}")
        print(f"{label:12}{len(chosen):6}" + "".join(texts))


def by_epsilon(rows: list[Row]) -> dict[str, list[Row]]:
    return {f"eps {e:g}": [row for row in rows if row.cell.epsilon == e] for e in EPSILONS}


def by_signal(rows: list[Row]) -> dict[str, list[Row]]:
    bands = itertools.pairwise(BANDS)
    found = {f"s {a:g}-{b:g}": [row for row in rows if a <= row.signal < b] for a, b in bands}
    return {label: chosen for label, chosen in found.items() if chosen}


def print_verdict(rows: list[Row]) -> None:
    """Each bar beside what was measured."""
    kinds = {
        "accuracy": [row for row in rows if not row.is_regression],
        "R2": [row for row in rows if row.is_regression],
    }
    for (kind, chosen), bar in zip(kinds.items(), (0.0, -0.01), strict=True):
        for relation in RELATIONS:
            same = [row for row in chosen if row.cell.neighboring == relation]
            if not same:
                continue
            gap = mean(same, "ours") - mean(same, "tuned")
            accuracy.line(f"{kind}, ours - tuned DP-GD, {relation}", gap, bar, gap >= bar)
            for name, title in PUBLISHED.items():
                gaps = {}
                for epsilon in EPSILONS:
                    both = [r for r in same if r.cell.epsilon == epsilon and name in r.metric]
                    gaps[epsilon] = mean(both, "ours") - mean(both, name)
                if not np.isnan(list(gaps.values())).all():
                    worst = min(gaps, key=lambda epsilon: gaps[epsilon])
                    label = f"{kind}, ours - {title}, least (eps {worst:g}), {relation}"
                    accuracy.line(label, gaps[worst], 0.0, gaps[worst] >= 0)
    for label, bar, chosen in (
        ("s >= 1", 0.0, [row for row in rows if row.signal >= 1]),
        ("s < 1", 0.02, [row for row in rows if row.signal < 1]),
    ):
        below = [row for row in chosen if row.is_below_constant]
        share = len(below) / max(len(chosen), 1)
        text = f"below the constant, {label} ({len(below)} of {len(chosen)} cells)"
        accuracy.line(text, share, bar, share <= bar)
    chosen = kinds["accuracy"]
    above = [row.log_loss["ours"].mean() > row.log_loss["constant"].mean() for row in chosen]
    text = f"log-loss above the constant's ({sum(above)} of {len(above)} cells)"
    accuracy.line(text, float(np.mean(above)), 0.03, np.mean(above) <= 0.03)


def print_each(rows: list[Row]) -> None:
    """One line for each cell: for data sets that may be looked at."""
    keys = [key for key in COLUMNS if any(key in row.metric for row in rows)]
    print(
        f"\n{'data':15}{'relation':12}{'eps':>5}{'s':>8}" + "".join(f"{k[:10]:>11}" for k in keys)
    )
    for row in sorted(rows, key=lambda row: (row.data, row.cell.neighboring, row.cell.epsilon)):
        scores = "".join(
            f"{row.mean(key):11.3f}" if key in row.metric else f"{'':11}" for key in keys
        )
        start = f"{row.data:15}{row.cell.neighboring:12}{row.cell.epsilon:5g}{row.signal:8.1f}"
        print(start + scores + ("  below the constant" if row.is_below_constant else ""))


def draw(rows: list[Row], half: str) -> Path:
    """Means of bands of the signal: accuracy on the left, R2 on the right."""
    fig, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    styles: dict[str, dict[str, Any]] = {
        "ours": {"color": "C3", "marker": "o", "linewidth": 2.5, "zorder": 5},
        "published": {"color": "C2", "marker": "v"},
        "tuned": {"color": "C0", "marker": "s"},
        "constant": {"color": "0.6", "linestyle": ":"},
        "non_private": {"color": "black", "linestyle": "--"},
    }
    titles = {**COLUMNS, "published": "best published peer of each cell"}
    for axis, is_regression in zip(axes, (False, True), strict=True):
        chosen = [
            row
            for row in rows
            if row.is_regression == is_regression and not np.isnan(row.best_published)
        ]
        bands = by_signal(chosen).values()
        at = [np.exp(np.mean(np.log([row.signal for row in band]))) for band in bands]
        for key, style in styles.items():
            means = [
                np.mean([row.best_published for row in band])
                if key == "published"
                else mean(band, key)
                for band in bands
            ]
            axis.plot(at, means, label=titles[key], markersize=4, **style)
        axis.set_xscale("log")
        axis.set_xlabel("signal s = n mu / (c p)")
        axis.set_ylabel("R2" if is_regression else "accuracy")
        axis.spines[["top", "right"]].set_visible(False)
    axes[1].set_ylim(bottom=-0.3)
    axes[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    n_sets = len({row.data for row in rows})
    fig.suptitle(f"{n_sets} data sets ({half}), means over cells of similar signal", fontsize=10)
    path = OUTPUT / f"unseen_data_{half}.png"
    OUTPUT.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=120)
    plt.close(fig)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--half", choices=("development", "judged", "both"), default="both")
    parser.add_argument("--data", nargs="+", help="only these of the half", metavar="NAME")
    parser.add_argument("--splits", type=int, default=SPLITS, help="2 or more")
    parser.add_argument("--jobs", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--ours", action="store_true", help="only the project's own columns")
    parser.add_argument("--peers", action="store_true", help="only the peers")
    parser.add_argument("--resume", action="store_true", help="only splits that are not kept yet")
    parser.add_argument("--each", action="store_true", help="each cell; development half only")
    parser.add_argument("--redraw", action="store_true", help="compute nothing")
    options = parser.parse_args()
    if options.splits < 2:
        parser.error(f"Got --splits {options.splits}, expected 2 or more: cross-fitting halves.")
    mpl.use("Agg")
    halves = {"development": [], "judged": []} if options.half == "both" else {options.half: []}
    for name in options.data or _data.NAMES:
        half = "judged" if _data.judged(name) else "development"
        if half in halves:
            halves[half].append(name)
    stores = {
        kind: json.loads(path.read_text()) if path.exists() else {} for kind, path in FILES.items()
    }
    kinds = ["ours"] * (not options.peers) + ["peers"] * (not options.ours)
    tasks = [
        (kind, name, split)
        for split in range(options.splits)
        for kind in kinds
        for names in halves.values()
        for name in names
        if not (options.resume and str(split) in stores[kind].get(name, {}))
    ]
    if not options.redraw:
        compute(tasks, options.jobs, {kind: stores[kind] for kind in kinds})
    for half, names in halves.items():
        rows = rows_of(names, options.splits, stores)
        if not rows:
            parser.error(f"Got no records in {OUTPUT}, expected some. Run without --redraw first.")
        print(f"\n===== {half}: {len({row.data for row in rows})} data sets, delta 1e-5 =====")
        for is_regression, kind in ((False, "accuracy"), (True, "R2")):
            for relation in RELATIONS:
                same = [
                    row
                    for row in rows
                    if row.is_regression == is_regression and row.cell.neighboring == relation
                ]
                if same:
                    print_means(same, f"{kind}, {relation}", by_epsilon(same))
                    print_means(same, f"{kind}, {relation}, by signal", by_signal(same))
        if options.each and half == "development":
            print_each(rows)
        print()
        print_verdict(rows)
        print(f"\nWrote {draw(rows, half)}")


if __name__ == "__main__":
    main()
