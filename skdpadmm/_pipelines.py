"""What of a pipeline or an ensemble may learn from data, and what treats each row by itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.special
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.pipeline import Pipeline

_Setting = tuple[Callable[[Any], bool], str]
_IS_NONE: _Setting = (lambda value: value is None, "None")


def _is_entrywise(func: Any) -> bool:
    """Whether a function is one of numpy or scipy itself that treats each entry by itself.

    Not with a loop of its own for integers: squares of int64 wrap around, and one row can turn the
    type of a column into a float. Not what a user made by frompyfunc.
    """
    if func is None:
        return True
    is_own = isinstance(func, np.ufunc) and any(
        getattr(module, func.__name__, None) is func for module in (np, scipy.special)
    )
    is_unary = is_own and func.nin == func.nout == 1
    return is_unary and not any(loop[0] in "?bBhHiIlLqQ" for loop in func.types)


# Transformers that learn nothing and transform each row by itself, and what their parameters have
# to be for that. By name, as importing all of them takes longer than a fit. Not encoders and
# imputers, which compare entries by the type of the column, which one row can change. Subclasses
# may do more.
_BY_ROW: dict[str, dict[str, _Setting]] = {
    "sklearn.compose.ColumnTransformer": {
        # Else how many entries are zero decides whether the result is sparse.
        "sparse_threshold": (lambda value: value == 0, "0"),
        "transformers": (
            lambda value: not any(callable(columns) for _, _, columns in value),
            "columns by names or positions",
        ),
    },
    "sklearn.feature_extraction.FeatureHasher": {},
    "sklearn.feature_extraction.HashingVectorizer": {
        "input": (lambda value: type(value) is str and value == "content", "'content'"),
        "preprocessor": _IS_NONE,
        "tokenizer": _IS_NONE,
        "analyzer": (lambda value: isinstance(value, str), "a string"),
        "strip_accents": (lambda value: not callable(value), "no function"),
    },
    "sklearn.preprocessing.Binarizer": {},
    "sklearn.preprocessing.FunctionTransformer": {
        "func": (_is_entrywise, "None, or a function of floats of numpy or scipy.special"),
        # Both are compared on some rows, and warned of.
        "inverse_func": _IS_NONE,
        # Such as out, where and dtype.
        "kw_args": _IS_NONE,
        "feature_names_out": (lambda value: not callable(value), "no function"),
    },
    "sklearn.preprocessing.Normalizer": {},
    "sklearn.preprocessing.PolynomialFeatures": {},
}


class Part(NamedTuple):
    """A part of an estimator that learns from data, and why it has no guarantee that adds up."""

    place: str
    value: Any
    problem: str
    # Fitted before what it is in.
    is_elsewhere: bool

    def describe(self) -> str:
        place = f" at {self.place}" if self.place else ""
        return f"{type(self.value).__name__}{place} {self.problem}"


def _nothing(_: Any) -> str:
    return ""


def _columns(model: Any) -> str:
    wrong = _wrong_settings(model)
    return f"may depend on all rows without {wrong}. Set it" if wrong else ""


def _folds(model: Any) -> str:
    return "" if model.cv in (None, "prefit") else _FOLDS


def _stack(model: Any) -> str:
    return "" if isinstance(model.cv, str) and model.cv == "prefit" else _FOLDS


def _bag(model: Any) -> str:
    if model.oob_score:
        return "has an exact oob_score_. Set oob_score=False"
    if getattr(model, "_sample_weight", None) is not None:
        # Draws by weights, as many as their sum: one moves the rows of others.
        return "drew rows by sample_weight, and one weight decides about others. Pass none"
    parts = [part.value for part in parts_of(model.estimators_[0])]
    draws_rows, draws_columns = (
        isinstance(share, int) or share not in (None, 1.0)
        for share in (model.max_samples, model.max_features)
    )
    if draws_rows and any(getattr(part, "max_rows_per_person", None) for part in parts):
        return "draws rows, and not persons. Set max_samples=1.0"
    if draws_columns and any(getattr(part, "agent_column", None) is not None for part in parts):
        return "draws columns, and takes another for that of agents. Set max_features=1.0"
    # A record that is there several times is protected less than each fit claims.
    return "repeats rows, which protects them less. Set bootstrap=False" if model.bootstrap else ""


_OR_PUBLIC = ", or one that was fitted on public rows, in a FrozenEstimator"
_FOLDS = "did not keep its fits of folds. Count them in a ledger: ledger='study.db'"
_SCORES = (
    "chose by scores without noise, and did not keep its fits of folds. What they cost:"
    " skdpadmm.model_selection.search_cost(search, n_samples=...)"
)
# What consists of parts: the attributes that a fit leaves them in, and why it may be more than the
# sum of their fits. Not OneVsOne: labels decide how many rows a part has.
_CONTAINERS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "sklearn.pipeline.Pipeline": ("steps", _nothing),
    "sklearn.pipeline.FeatureUnion": ("transformer_list", _nothing),
    "sklearn.compose.ColumnTransformer": ("transformers_", _columns),
    "sklearn.compose.TransformedTargetRegressor": ("transformer_ regressor_", _nothing),
    "sklearn.multiclass.OneVsRestClassifier": ("label_binarizer_ estimators_", _nothing),
    "sklearn.multioutput.MultiOutputClassifier": ("estimators_", _nothing),
    "sklearn.multioutput.MultiOutputRegressor": ("estimators_", _nothing),
    "sklearn.multioutput.ClassifierChain": ("estimators_", _folds),
    "sklearn.multioutput.RegressorChain": ("estimators_", _folds),
    "sklearn.ensemble.VotingClassifier": ("le_ estimators_", _nothing),
    "sklearn.ensemble.VotingRegressor": ("estimators_", _nothing),
    "sklearn.ensemble.StackingClassifier": ("estimators_ final_estimator_", _stack),
    "sklearn.ensemble.StackingRegressor": ("estimators_ final_estimator_", _stack),
    "sklearn.ensemble.BaggingClassifier": ("estimators_", _bag),
    "sklearn.ensemble.BaggingRegressor": ("estimators_", _bag),
    "sklearn.model_selection.GridSearchCV": ("best_estimator_", lambda _: _SCORES),
    "sklearn.model_selection.RandomizedSearchCV": ("best_estimator_", lambda _: _SCORES),
    "sklearn.model_selection.FixedThresholdClassifier": ("estimator_", _nothing),
    "sklearn.calibration._CalibratedClassifier": ("estimator calibrators", _nothing),
    # Its calibrators are without noise.
    "sklearn.calibration.CalibratedClassifierCV": ("calibrated_classifiers_", _nothing),
}
# What has learnt from public rows alone, and is frozen, may still compare by the type of a column,
# or stop its iterations by all rows.
_NOT_BY_ROW = ("Encoder", "Imputer", "Indicator", "NMF")
# They learn nothing but the set of labels, which estimators assume to be public too.
_INNOCENT = ("sklearn.preprocessing.LabelEncoder", "sklearn.preprocessing.LabelBinarizer")
FROZEN = "sklearn.frozen.FrozenEstimator"
# Lines and files can be counted, and rows that one trial changes reach the next.
_SILENT = {"verbose": False, "memory": None, "copy": True}


def last_step(estimator: Any) -> Any:
    """The estimator itself, or what a pipeline ends with."""
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    return estimator


def prefix_of(estimator: Any) -> str:
    """What names of parameters of the last step begin with in a pipeline."""
    prefix = ""
    while isinstance(estimator, Pipeline):
        name, estimator = estimator.steps[-1]
        prefix += f"{name}__"
    return prefix


def with_parameters(estimator: Any, parameters: Mapping[str, Any], **own: Any) -> Any:
    """A clone with the parameters of a candidate; `own` ones are those of the last step."""
    # Values are cloned as scikit-learn does: a step of a grid is never fitted.
    values = {name: clone(value, safe=False) for name, value in parameters.items()}
    candidate = clone(estimator).set_params(**values)
    last = last_step(candidate)
    last.set_params(**{name: value for name, value in own.items() if name in last.get_params()})
    return candidate


def silent(estimator: Any) -> Any:
    """The same estimator without printing, caching, and changing the rows that it is given."""
    return estimator.set_params(**_loud(estimator))


def _loud(estimator: Any) -> dict[str, Any]:
    """The parameters by which it prints, caches or changes rows, with what they should be."""
    parameters = estimator.get_params(deep=True)
    names = {name: name.rpartition("__")[2] for name in parameters}
    values = {name: _SILENT[last] for name, last in names.items() if last in _SILENT}
    return {n: value for n, value in values.items() if bool(parameters[n]) != bool(value)}


def public_name(value: Any) -> str:
    """Where its type is found, such as sklearn.svm.SVC; empty for types of others.

    Of scikit-learn's types and this package's own ones: subclasses may do more.
    """
    kind = type(value)
    package = ".".join(kind.__module__.split(".")[:2])
    is_itself = getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind
    is_known = is_itself and package.startswith(("sklearn.", "skdpadmm."))
    return f"{package}.{kind.__name__}" if is_known else ""


def parts_of(
    value: Any, place: str = "", seen: dict[int, Any] | None = None, *, is_frozen: bool = False
) -> Iterator[Part]:
    """All of an estimator, fitted or not, that is not known to learn nothing; each object once."""
    seen = {} if seen is None else seen
    if value is None or isinstance(value, str) or id(value) in seen:
        return
    seen[id(value)] = value  # alive, so that no other object gets its number
    kind = public_name(value)
    if kind == FROZEN:
        yield from parts_of(value.estimator, place, seen, is_frozen=True)
        return
    if kind.startswith("skdpadmm.") and callable(getattr(value, "plan", None)):
        yield Part(place, value, "", is_frozen)
        return
    if kind in _INNOCENT or acts_by_row(value):
        return
    is_container = kind in _CONTAINERS
    names, problem_of = _CONTAINERS[kind] if is_container else (_fitted_names(value), _why)
    if problem := problem_of(value):
        yield Part(place, value, problem, is_frozen and _is_frozen_leaf(value))
    for name in names.split():
        held: Any = getattr(value, name, None)
        if held is None and name == "transformers_":  # not fitted
            held = [*value.transformers, ("remainder", value.remainder)]
        where = f"{place}.{name}" if place else name
        is_list = isinstance(held, list | tuple)
        for i, each in enumerate(held if is_list else [held]):
            child = each[1] if isinstance(each, tuple) else each
            if is_container or hasattr(child, "privacy_"):
                at = f"{where}[{i}]" if is_list else where
                yield from parts_of(child, at, seen)


def _is_frozen_leaf(value: Any) -> bool:
    """Whether a frozen object treats each row by itself, and can be assumed to know public rows.

    Not what may have private fits inside, or a function.
    """
    kind = public_name(value)
    if not kind or kind.endswith(_NOT_BY_ROW) or kind in {*_CONTAINERS, *_BY_ROW, FROZEN}:
        return False
    own = value.get_params(deep=False).values()
    has_function = any(callable(each) and not isinstance(each, type) for each in own)
    is_composed = isinstance(value, MetaEstimatorMixin) or hasattr(value, "privacy_")
    return not (has_function or is_composed)


def _fitted_names(value: Any) -> str:
    return " ".join(name for name in getattr(value, "__dict__", {}) if name.endswith("_"))


def _why(value: Any) -> str:
    """Why nobody knows what an object has learnt."""
    kind = public_name(value)
    if hasattr(value, "privacy_") or callable(getattr(value, "plan", None)):
        return (
            "is no class of this package itself, and may have learnt more than it reports. Use one"
        )
    if isinstance(value, MetaEstimatorMixin):
        return "is not known to be the sum of its parts. Pass a list of all its fits"
    if kind in _BY_ROW:
        return f"may depend on all rows without {_wrong_settings(value)}. Set it"
    if not kind:
        other = "is not of this package or scikit-learn, and may have learnt from the data"
        return f"{other}. Use one of skdpadmm{_OR_PUBLIC}"
    return f"learnt from the data without noise. Use one of skdpadmm{_OR_PUBLIC}"


def acts_by_row(step: Any) -> bool:
    """Whether a transformer is known to learn nothing and to transform each row by itself."""
    return not any(objections(step))


def objections(step: Any, place: str = "", *, takes_frozen: bool = False) -> Iterator[str]:
    """All parts of a transformer that may learn from rows or mix them, and parameters to pass.

    With ``takes_frozen`` a frozen step is accepted that treats each row by itself.
    """
    if step is None or (isinstance(step, str) and step in ("passthrough", "drop")):
        return
    kind, name = public_name(step), f"{type(step).__name__} {place!r}"
    if kind.startswith("skdpadmm.preprocessing."):
        return
    if kind == FROZEN and takes_frozen:
        name = f"FrozenEstimator {place!r} of {type(step.estimator).__name__}"
        if not _is_frozen_leaf(step.estimator) and not acts_by_row(step.estimator):
            yield name
        elif loud := _loud(step.estimator):
            # Nothing changes the parameters of what is frozen.
            yield f"{name} (freeze one with {', '.join(f'{n}={v}' for n, v in loud.items())})"
        return
    if kind not in {*_BY_ROW, "sklearn.pipeline.Pipeline"}:
        yield name
        return
    if wrong := _wrong_settings(step):
        yield f"{name} (pass {wrong})"
    names = ("steps", "transformers_", "transformers")
    parts = next((getattr(step, attribute) for attribute in names if hasattr(step, attribute)), ())
    for part in (*parts, ("remainder", getattr(step, "remainder", None))):
        inside = f"{place}.{part[0]}" if place else part[0]
        yield from objections(part[1], inside, takes_frozen=takes_frozen)


def _wrong_settings(step: Any) -> str:
    """Parameters that a listed transformer needs to treat each row by itself."""
    return ", ".join(
        f"{name}={words}"
        for name, (is_right, words) in _BY_ROW.get(public_name(step), {}).items()
        if not is_right(getattr(step, name))
    )


def require_plan(estimator: Any) -> None:
    """Refuse an estimator whose last step has no plan."""
    last = last_step(estimator)
    if not callable(getattr(last, "plan", None)):
        raise TypeError(
            f"Got an estimator of type {type(last).__name__}, expected a model of this package,"
            " alone or as the last step of a Pipeline: what a fit costs has to be known before it."
        )


def require_known(estimator: Any) -> None:
    """Refuse an estimator with a part that may learn what its plan does not know of."""
    problems = [p.describe() for p in parts_of(estimator) if p.problem and not p.is_elsewhere]
    if problems:
        raise ValueError(
            f"Got a model that costs more than its private fits: {'; '.join(problems)}. Expected"
            " steps that learn nothing, such as PublicTableTransformer and BoundedScaler, or"
            " a FrozenEstimator around each one that was fitted on public rows. Apply others, if"
            " they treat each row by itself, before the pipeline."
        )


def n_features_of_last_step(estimator: Any, n_features: int, columns: Any = None) -> int:
    """How many features arrive at the last step, from rows of zeros."""
    steps: Any = transformers_of(estimator)
    if steps is None:
        return n_features
    # Functions of entries do not change how many columns there are, and not all take text.
    functions = [n for n, value in steps.get_params().items() if isinstance(value, np.ufunc)]
    steps.set_params(**dict.fromkeys(functions))
    # A zero as text is a number, a word and an unknown category. The columns of a table are text
    # where some of them are.
    for zero, dtype in ((0.0, np.float64), ("0", object)):
        rows: Any = np.full((2, n_features), zero, dtype=dtype)
        if columns is not None:
            import pandas as pd

            rows = pd.DataFrame(rows, columns=list(columns), dtype=dtype)
        try:
            return int(clone(steps).fit_transform(rows).shape[1])
        except (AttributeError, TypeError, ValueError) as error:
            reason = str(error).split("\n", maxsplit=1)[0]
    names = "n_features and columns" if columns is None else "n_features"
    raise ValueError(
        f"Got transformers that fail on {n_features} columns of zeros ({reason}), expected ones"
        f" whose number of columns follows from their parameters. Check {names}."
    )


def transformers_of(estimator: Any) -> Any:
    """All steps before the last, in pipelines of any depth, as one; None where there are none."""
    parts: list[Any] = []
    while isinstance(estimator, Pipeline):
        parts += [(f"s{len(parts)}", estimator[:-1])] if len(estimator.steps) > 1 else []
        estimator = estimator.steps[-1][1]
    return silent(clone(Pipeline(parts))) if parts else None
