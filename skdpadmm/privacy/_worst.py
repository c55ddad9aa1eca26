"""The weakest of several guarantees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skdpadmm.privacy._guarantee import Guarantee
from skdpadmm.privacy._validation import require_delta, require_epsilon


@dataclass(frozen=True)
class Worst(Guarantee):
    r"""What holds for all of several units, each with a guarantee of its own.

    .. math:: \delta(\epsilon) = \max_i \delta_i(\epsilon)

    :func:`worst` simplifies where it can.

    Parameters
    ----------
    components : tuple of Guarantee
        At least one.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, Mixture, Worst
    >>> rare, steady = Mixture((0.9, 0.1), (GaussianDP(0.0), GaussianDP(1.0))), GaussianDP(0.3)
    >>> both = Worst((rare, steady))
    >>> [both.delta(epsilon) == steady.delta(epsilon) for epsilon in (0.0, 1.0)]
    [True, False]
    """

    components: tuple[Guarantee, ...]

    def __post_init__(self) -> None:
        """Freeze the sequence and refuse what is no guarantee."""
        object.__setattr__(self, "components", tuple(self.components))
        if not self.components:
            raise ValueError("Got no components, expected at least one guarantee.")
        for component in self.components:
            if not isinstance(component, Guarantee):
                raise TypeError(f"Got a component {component!r}, expected a Guarantee.")

    def delta(self, epsilon: float) -> float:
        """Return the largest delta at ``epsilon`` in [0, inf]."""
        require_epsilon(epsilon)
        return max(component.delta(epsilon) for component in self.components)

    def epsilon(self, delta: float) -> float:
        """Return the largest epsilon at ``delta`` in [0, 1]."""
        require_delta(delta)
        return max(component.epsilon(delta) for component in self.components)

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and every component."""
        return {"kind": "worst", "components": [c.to_dict() for c in self.components]}

    def describe(self) -> str:
        """Return the number of guarantees."""
        return f"worst of {len(self.components)} guarantees"


def worst(*guarantees: Guarantee) -> Guarantee:
    """Return the weakest of ``guarantees``, as simply as it can be said.

    Parameters
    ----------
    *guarantees : Guarantee
        At least one.

    Returns
    -------
    Guarantee
        ``NonPrivate()`` if there is one among them. Otherwise those are dropped that another one
        plainly implies, such as all Gaussian ones but the one with the largest mu; one that is
        left alone is returned as it is, several as a :class:`Worst`.

    Raises
    ------
    TypeError
        If something is no guarantee.
    ValueError
        If there is none.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, worst
    >>> worst(GaussianDP(0.1), GaussianDP(0.3), GaussianDP(0.2))
    GaussianDP(mu=0.3)
    """
    kept: list[Guarantee] = []
    for guarantee in _flatten(Worst(guarantees)):
        if not any(other.dominates(guarantee) for other in kept):
            kept = [other for other in kept if not guarantee.dominates(other)]
            kept.append(guarantee)
    return kept[0] if len(kept) == 1 else Worst(tuple(kept))


def _flatten(guarantee: Guarantee) -> list[Guarantee]:
    if isinstance(guarantee, Worst):
        return [part for component in guarantee.components for part in _flatten(component)]
    return [guarantee]
