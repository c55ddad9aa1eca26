"""Guarantees in general: their curves, their serialised form, and the neighbouring relations."""

from __future__ import annotations

import dataclasses
import math
import sys
import typing
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from skdpadmm._numbers import require, require_delta, require_epsilon, smallest_epsilon
from skdpadmm.privacy import _pld as pld

# Of what to_dict writes.
_VERSION = 1
# Guarantees of guarantees: what this package writes is three deep at most.
_DEEPEST = 20
# Points at which a curve without a vectorised form is evaluated, and the tail beyond the last one.
_CURVE_POINTS, _TAIL = 512, 1e-18
# Of a Gaussian loss down to that tail, in standard deviations.
_WIDTH = 9.0
# Beyond an epsilon at which curves are looked at for a lower bound of the accuracy of attacks.
_STEPS = np.geomspace(0.01, 20.0, 32)
# The largest epsilon of trade-off functions: its exponential is finite.
_WIDEST = 600.0
_KINDS: dict[str, type[Guarantee]] = {}


class Neighboring(StrEnum):
    """Which data sets a guarantee makes hard to tell apart.

    - ``REPLACE_ONE``: the number of records is fixed and public; one record is replaced by any
      other.
    - ``ZERO_OUT``: the number of records is fixed and public; one record's loss is replaced by the
      zero function. It counts as absent from a released second moment, a histogram of scales and
      moments of targets. Under sampling the participant is absent, its message zero.
    - ``ADD_REMOVE``: one record more or less; the number of records is private. Sums of clipped
      contributions move as for ``ZERO_OUT``, and what they are divided by has to be released.

    Examples
    --------
    >>> from skdpadmm.privacy import Neighboring
    >>> Neighboring("replace_one").sensitivity_factor
    2
    """

    REPLACE_ONE = "replace_one"
    ZERO_OUT = "zero_out"
    ADD_REMOVE = "add_remove"

    @property
    def sensitivity_factor(self) -> int:
        """Sensitivity of a contribution clipped to norm C, over C: 2 or 1."""
        return 2 if self is Neighboring.REPLACE_ONE else 1

    @property
    def second_moment_factor(self) -> float:
        """Sensitivity of ``a a'`` of a row of norm R in Frobenius norm, over ``R**2``.

        ``|aa' - bb'|^2 = |a|^4 + |b|^4 - 2 (a'b)^2`` is at most ``2 R^4``.
        """
        return math.sqrt(2.0) if self is Neighboring.REPLACE_ONE else 1.0

    @property
    def target_moments_factor(self) -> float:
        """Sensitivity of ``(b, 1.6 b^2)`` for b in [-1, 1], in Euclidean norm.

        Of two values with difference u and sum v it is ``u^2 (1 + 2.56 v^2)`` at most, where
        ``|u| <= 2 - |v|``: no more than 4, at -1 and 1: the square costs nothing beside the mean.
        """
        return 2.0 if self is Neighboring.REPLACE_ONE else math.hypot(1.0, 1.6)


class Guarantee(ABC):
    """A differential privacy guarantee: a curve of (epsilon, delta), known from above.

    A concrete guarantee is a frozen dataclass: it compares and hashes by value, and holds nothing
    but its parameters. Each is a leaf of :func:`compose`, which needs nothing but its curve: of any
    two neighbouring data sets, in both directions, delta is at most what it answers.
    """

    kind: ClassVar[str] = ""

    def __init_subclass__(cls, kind: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind:
            cls.kind = kind
            _KINDS[kind] = cls

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Return the smallest known delta at ``epsilon`` in [0, inf]; it is 0 at infinity."""

    def epsilon(self, delta: float) -> float:
        """Return the smallest known epsilon at ``delta``, on the safe side of its rounding.

        Parameters
        ----------
        delta : float
            In [0, 1].

        Returns
        -------
        float
            0.0 when ``delta(0) <= delta``, infinity when no finite epsilon reaches ``delta``.
        """
        require_delta(delta)
        if delta == 0.0:  # at a finite epsilon a delta of zero may be nothing but underflow
            return 0.0 if self.delta(0.0) == 0.0 else math.inf
        return smallest_epsilon(lambda epsilon: self.delta(epsilon) <= delta)

    def attack_accuracy(self, prior: float = 0.5) -> float:
        r"""Return how often the best attack is right at most, in [0.5, 1].

        The attack sees what was released, knows all other records, and tells which of two
        neighbouring data sets it came from (the accuracy of membership or attribute inference;
        Kulynych et al., "Attack-aware noise calibration for differential privacy", NeurIPS 2024).

        Parameters
        ----------
        prior : float, default=0.5
            In [0, 1], the probability of one of the two before anything is released. Whoever
            guesses is right with the larger of ``prior`` and ``1 - prior``.

        Returns
        -------
        float
            With :math:`\pi = \min(p, 1-p)`

            .. math:: 1 - \pi + \pi \delta(\log((1-\pi)/\pi)),

            at equal odds :math:`(1 + \delta(0)) / 2`, which for GDP is :math:`\Phi(\mu/2)`. Where
            the curve is known from above and a larger epsilon gives a lower bound, that one.

        Examples
        --------
        >>> from skdpadmm.privacy import GaussianDP, NonPrivate
        >>> f"{GaussianDP(0.268051).attack_accuracy():.3f}", NonPrivate().attack_accuracy()
        ('0.553', 1.0)
        """
        require(0 <= prior <= 1, "prior", prior, "a float in [0, 1]")
        least = min(prior, 1.0 - prior)
        if least == 0.0:
            return 1.0
        odds = math.log((1.0 - least) / least)
        bounds = [1.0 - least + least * self.delta(odds)]
        # From above, a corner of the region that one (epsilon, delta) leaves to errors.
        for epsilon in (odds + _STEPS).tolist():
            bounds.append(1.0 - (1.0 - self.delta(epsilon)) * float(expit(-epsilon)))
        return min(bounds)

    def trade_off(self, false_positive_rates: ArrayLike) -> NDArray[np.float64]:
        r"""Return the least false negative rate of an attack, for each false positive rate.

        .. math:: f(\alpha) = \sup_{\epsilon \ge 0} \max\{0, 1 - \delta(\epsilon) - e^{\epsilon}
                  \alpha, e^{-\epsilon} (1 - \delta(\epsilon) - \alpha)\}

        (Dong, Roth and Su, JRSS-B 2022, Proposition 6.) It is never too large: the supremum is
        over 512 epsilons, and has a closed form for GDP.

        Parameters
        ----------
        false_positive_rates : array-like
            In [0, 1].

        Returns
        -------
        ndarray
            Of the same shape.

        Examples
        --------
        >>> from skdpadmm.privacy import LaplaceDP
        >>> LaplaceDP(1.0).trade_off([0.0, 0.1, 1.0]).round(3).tolist()
        [1.0, 0.728, 0.0]
        """
        rates = require_rates(false_positive_rates)[..., np.newaxis]
        widest = min(self.widest_loss(), _WIDEST)
        epsilons = np.unique(np.linspace(0.0, widest, _CURVE_POINTS))
        specific = 1.0 - self.deltas(epsilons)
        lines = specific - np.exp(epsilons) * rates, np.exp(-epsilons) * (specific - rates)
        return np.asarray(np.maximum(*lines).max(axis=-1).clip(min=0.0))

    def dominates(self, other: Guarantee) -> bool:
        """Whether it is plain that its delta is at least another's, at every epsilon.

        False where it takes more than a look at the parameters.
        """
        return self == other

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary: ``"version"`` of the form, ``"kind"`` and parameters."""
        return {"version": _VERSION, **_parameters(self)}

    @abstractmethod
    def describe(self) -> str:
        """Return one short phrase, parameters rounded to the unflattering side."""

    # What composition by privacy loss distributions asks for.

    def deltas(self, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return upper bounds of delta at increasing epsilons (k,).

        Between points a true curve is below the chord, because it is convex in exp(epsilon).
        """
        step = math.ceil(len(epsilons) / _CURVE_POINTS)
        points = np.append(epsilons[:-1:step], epsilons[-1])
        values = [self.delta(epsilon) for epsilon in points.tolist()]
        return np.interp(np.exp(epsilons), np.exp(points), values)

    def widest_loss(self) -> float:
        """Return the largest privacy loss, up to a negligible probability."""
        return self.epsilon(min(1.0, self.infinite_loss() * (1.0 + 1e-9) + _TAIL))

    def loss_std(self) -> float:
        """Return about the standard deviation of the privacy loss."""
        return self.widest_loss() / _WIDTH

    def loss_distribution(self, interval: float) -> Any:
        """Return dp-accounting's privacy loss distribution on a grid, rounded upwards."""
        return pld.from_curve(self.deltas, self.widest_loss(), interval)

    def rounds(self) -> Rounds:
        """Return what composes, and how often each part of it occurs."""
        return ((self, 1),)

    def relations(self) -> set[Neighboring]:
        """Return the neighbouring relations that it is stated under, as far as it states any."""
        own = {self.neighboring} if hasattr(self, "neighboring") else set()
        return own.union(*(part.relations() for part in getattr(self, "components", ())))

    def infinite_loss(self) -> float:
        """Return the probability of an infinite privacy loss."""
        return self.delta(sys.float_info.max)

    def largest_mu(self) -> float:
        """Return a mu whose Gaussian guarantee is known to be no better; infinity if none is."""
        return math.inf

    def absorb(self, gaussian_mu: float) -> Guarantee | None:
        """Return its composition with GDP(gaussian_mu) where that has a closed form."""
        return None


# Guarantees, and how often each occurs.
Rounds = tuple[tuple[Guarantee, int], ...]


@dataclass(frozen=True)
class NonPrivate(Guarantee, kind="non_private"):
    """No guarantee at all: delta is 1 at every finite epsilon.

    Examples
    --------
    >>> from skdpadmm.privacy import NonPrivate
    >>> NonPrivate().epsilon(1e-6)
    inf
    """

    def delta(self, epsilon: float) -> float:
        require_epsilon(epsilon)
        return 0.0 if math.isinf(epsilon) else 1.0

    def dominates(self, other: Guarantee) -> bool:
        return True

    def absorb(self, gaussian_mu: float) -> NonPrivate:
        return self

    def describe(self) -> str:
        return "not private"


def guarantee_from_dict(plain: dict[str, Any]) -> Guarantee:
    """Return the guarantee that a dictionary describes: the inverse of `Guarantee.to_dict`.

    It builds guarantees of this package and nothing else. An unknown version, kind or field is
    refused.

    Parameters
    ----------
    plain : dict
        What ``to_dict`` gave, or the same after a way through JSON text.

    Raises
    ------
    TypeError
        If something has the wrong type.
    ValueError
        If the version or the kind is unknown, a field is unknown or missing, or a value is out of
        range.

    Examples
    --------
    >>> import json
    >>> from skdpadmm.privacy import GaussianDP, Worst, guarantee_from_dict
    >>> both = Worst((GaussianDP(0.1), GaussianDP(0.3)))
    >>> guarantee_from_dict(json.loads(json.dumps(both.to_dict()))) == both
    True
    """
    _expect(isinstance(plain, dict), "a guarantee", plain, "a dict that to_dict wrote")
    parameters = {name: value for name, value in plain.items() if name != "version"}
    if plain.get("version") != _VERSION:
        raise ValueError(
            f"Got a guarantee of version={_shown(plain.get('version'))}, expected {_VERSION}. Read"
            " it with the skdpadmm that wrote it."
        )
    guarantee = _read_guarantee(parameters, "a guarantee", 0)
    if guarantee.to_dict() != plain:
        raise ValueError(f"Got {_shown(plain)}, expected what to_dict writes of {guarantee!r}.")
    return guarantee


@lru_cache
def _fields(kind: type[Guarantee]) -> dict[str, Any]:
    """Return the types of the fields of a guarantee by their names."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}  # type: ignore[arg-type]


def _plain(value: Any, hint: Any) -> Any:
    """Return a value of the type that a field is annotated with as JSON has it."""
    if typing.get_origin(hint) is tuple:
        return [_plain(entry, typing.get_args(hint)[0]) for entry in value]
    if hint in (int, float):
        return "inf" if value == math.inf else hint(value)
    return _parameters(value) if isinstance(value, Guarantee) else str(value)


def _parameters(guarantee: Guarantee) -> dict[str, Any]:
    fields = _fields(type(guarantee)).items()
    return {"kind": guarantee.kind} | {n: _plain(getattr(guarantee, n), hint) for n, hint in fields}


def _read(value: Any, hint: Any, name: str, depth: int) -> Any:
    """Return a value of the type that a field is annotated with."""
    if typing.get_origin(hint) is tuple:
        _expect(isinstance(value, list), name, value, "a list")
        entry = typing.get_args(hint)[0]
        return tuple(_read(v, entry, f"{name}[{i}]", depth) for i, v in enumerate(value))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        _expect(isinstance(value, str), name, value, "a str")
        if value not in list(hint):
            raise ValueError(f"Got {name}={_shown(value)}, expected one of {list(map(str, hint))}.")
        return hint(value)
    if hint is float and value == "inf":
        return math.inf
    if hint in (int, float):
        # True is an int to Python; as a parameter of a guarantee it is a mistake.
        number = isinstance(value, int | hint) and not isinstance(value, bool)
        _expect(number, name, value, "a number" if hint is float else "an int")
        if not abs(value) <= sys.float_info.max:
            raise ValueError(f"Got {name}={_shown(value)}, expected a finite number.")
        return hint(value)
    return _read_guarantee(value, name, depth + 1)


def _read_guarantee(plain: Any, name: str, depth: int) -> Guarantee:
    if depth > _DEEPEST:
        raise ValueError(
            f"Got a guarantee nested more than {_DEEPEST} deep, expected one that to_dict wrote."
        )
    _expect(isinstance(plain, dict), name, plain, "a dict that to_dict wrote")
    kind = plain.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(
            f"Got a guarantee of kind={_shown(kind)}, expected one of {sorted(_KINDS)}."
            " A newer version may know it: update skdpadmm."
        )
    fields = _fields(_KINDS[kind])
    if set(plain) != {"kind", *fields}:
        raise ValueError(
            f"Got the fields {sorted(map(str, plain))} of a guarantee of kind={kind!r}, expected"
            f" {sorted(['kind', *fields])}. A newer version may know them: update skdpadmm."
        )
    return _KINDS[kind](**{n: _read(plain[n], hint, n, depth) for n, hint in fields.items()})


def require_rates(rates: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(rates, dtype=np.float64)
    is_share = bool(((values >= 0) & (values <= 1)).all())
    require(is_share, "false_positive_rates", rates, "floats in [0, 1]")
    return values


def _expect(valid: bool, name: str, value: Any, expected: str) -> None:
    if not valid:
        raise TypeError(f"Got {name}={_shown(value)}, expected {expected}.")


def _shown(value: Any) -> str:
    """A value in an error, no longer than a line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
