"""Guarantees from the plain dictionaries that they write."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from skdpadmm.privacy._composition import Composed, Part
from skdpadmm.privacy._gaussian import GaussianDP
from skdpadmm.privacy._guarantee import Guarantee, NonPrivate
from skdpadmm.privacy._laplace import LaplaceDP
from skdpadmm.privacy._mixture import Mixture
from skdpadmm.privacy._neighboring import Neighboring
from skdpadmm.privacy._objective_perturbation import LossDerivative, PerturbedObjectiveDP
from skdpadmm.privacy._randomized_response import RandomizedResponseDP
from skdpadmm.privacy._renyi import RenyiDP
from skdpadmm.privacy._sampled import PoissonSubsampledGaussian
from skdpadmm.privacy._uniform_laplace_dp import UniformLaplaceDP
from skdpadmm.privacy._worst import Worst

# Guarantees of guarantees: what this package writes is three deep at most.
_DEEPEST = 20


def guarantee_from_dict(plain: dict[str, Any]) -> Guarantee:
    """Return the guarantee that a dictionary describes: the inverse of `Guarantee.to_dict`.

    It builds guarantees of this package and nothing else, and guesses nothing: what it does not
    know in full it refuses.

    Parameters
    ----------
    plain : dict
        What ``to_dict`` gave, or the same after a way through JSON text.

    Returns
    -------
    Guarantee
        Equal to the one that was written.

    Raises
    ------
    TypeError
        If something has the wrong type.
    ValueError
        If the kind is unknown, a field is unknown or missing, or a value is out of range.

    Examples
    --------
    >>> import json
    >>> from skdpadmm.privacy import GaussianDP, Worst, guarantee_from_dict
    >>> both = Worst((GaussianDP(0.1), GaussianDP(0.3)))
    >>> guarantee_from_dict(json.loads(json.dumps(both.to_dict()))) == both
    True
    """
    return _read(plain, depth=0)


def _read(plain: Any, depth: int) -> Guarantee:
    if depth > _DEEPEST:
        raise ValueError(
            f"Got a guarantee nested more than {_DEEPEST} deep, expected one that to_dict wrote."
        )
    if not isinstance(plain, dict):
        raise TypeError(f"Got {_shown(plain)}, expected a dict that to_dict wrote.")
    kind = plain.get("kind")
    if not isinstance(kind, str) or kind not in _READERS:
        raise ValueError(
            f"Got a guarantee of kind={_shown(kind)}, expected one of {sorted(_READERS)}."
            " A newer version may know it: update skdpadmm."
        )
    fields, build = _READERS[kind]
    if set(plain) != {"kind", *fields}:
        raise ValueError(
            f"Got the fields {sorted(map(str, plain))} of a guarantee of kind={kind!r}, expected"
            f" {sorted(['kind', *fields])}. A newer version may know them: update skdpadmm."
        )
    arguments = {name: read(plain[name], name, depth) for name, read in fields.items()}
    return build(**arguments)


def _number(value: Any, name: str, depth: int = 0) -> float:
    # True is an int to Python; as a parameter of a guarantee it is a mistake.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"Got {name}={_shown(value)}, expected a number.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"Got {name}={_shown(value)}, expected a finite number.")
    return number


def _count(value: Any, name: str, depth: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"Got {name}={_shown(value)}, expected an int.")
    return value


def _number_or_inf(value: Any, name: str, depth: int = 0) -> float:
    return math.inf if value == "inf" else _number(value, name)


def _relation(value: Any, name: str, depth: int) -> Neighboring:
    return Neighboring(_text(value, name, [str(relation) for relation in Neighboring]))


def _derivative(value: Any, name: str, depth: int) -> LossDerivative:
    return LossDerivative(_text(value, name, [str(known) for known in LossDerivative]))


def _text(value: Any, name: str, known: list[str]) -> str:
    if not isinstance(value, str):
        raise TypeError(f"Got {name}={_shown(value)}, expected a str.")
    if value not in known:
        raise ValueError(f"Got {name}={_shown(value)}, expected one of {known}.")
    return value


def _many(read: Callable[[Any, str, int], Any]) -> Callable[[Any, str, int], tuple[Any, ...]]:
    def read_all(value: Any, name: str, depth: int) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise TypeError(f"Got {name}={_shown(value)}, expected a list.")
        return tuple(read(entry, f"{name}[{i}]", depth) for i, entry in enumerate(value))

    return read_all


def _guarantee(value: Any, name: str, depth: int) -> Guarantee:
    return _read(value, depth + 1)


def _part(value: Any, name: str, depth: int) -> Part:
    part = _read(value, depth + 1)
    if not isinstance(part, Part):
        raise TypeError(
            f"Got {name} of kind={value['kind']!r}, expected a part that has a loss distribution:"
            " Gaussian, subsampled, Laplace or a randomised response."
        )
    return part


def _shown(value: Any) -> str:
    """A value in an error, no longer than a line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _response(epsilon: float, n_labels: int) -> RandomizedResponseDP:
    return RandomizedResponseDP(epsilon, n_labels)


def _as_written(build: Callable[..., Guarantee], emptiable: str) -> Callable[..., Guarantee]:
    """Refuse counts that are left out: `to_dict` writes one for each entry."""

    def checked(**fields: Any) -> Guarantee:
        if len(fields["counts"]) != len(fields[emptiable]):
            raise ValueError(
                f"Got {len(fields[emptiable])} {emptiable} and {len(fields['counts'])} counts,"
                " expected as many."
            )
        return build(**fields)

    return checked


_Reader = Callable[[Any, str, int], Any]
_READERS: dict[str, tuple[dict[str, _Reader], Callable[..., Guarantee]]] = {
    "non_private": ({}, NonPrivate),
    "gaussian": ({"mu": _number}, GaussianDP),
    "laplace": (
        {"epsilons": _many(_number), "counts": _many(_count)},
        _as_written(LaplaceDP, "epsilons"),
    ),
    "uniform_laplace": (
        {
            "rates": _many(_number),
            "widths": _many(_number),
            "shifts": _many(_number),
            "counts": _many(_count),
        },
        _as_written(UniformLaplaceDP, "rates"),
    ),
    "randomized_response": ({"epsilon": _number, "n_labels": _count}, _response),
    "poisson_subsampled_gaussian": (
        {
            "sampling_probability": _number,
            "noise_multiplier": _number,
            "n_rounds": _count,
            "neighboring": _relation,
        },
        PoissonSubsampledGaussian,
    ),
    "perturbed_objective": (
        {
            "gradient_ratio": _number,
            "curvature_ratio": _number,
            "neighboring": _relation,
            "derivative": _derivative,
            "saturation": _number,
            "gaussian_mu": _number,
        },
        PerturbedObjectiveDP,
    ),
    "renyi": ({"orders": _many(_number), "divergences": _many(_number_or_inf)}, RenyiDP),
    "composed": ({"parts": _many(_part)}, Composed),
    "mixture": ({"weights": _many(_number), "components": _many(_guarantee)}, Mixture),
    "worst": ({"components": _many(_guarantee)}, Worst),
}
