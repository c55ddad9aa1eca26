"""Mixtures over a label that is revealed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from skdpadmm.privacy._gaussian import GaussianDP, gaussian_log_delta
from skdpadmm.privacy._guarantee import Guarantee
from skdpadmm.privacy._validation import require, require_epsilon


@dataclass(frozen=True)
class Mixture(Guarantee):
    r"""One of several guarantees, by a data-independent random label that is revealed.

    .. math:: \delta(\epsilon) = \sum_l w_l \delta_l(\epsilon)

    The label's law must not depend on the data. The figure is an average over the label: its worst
    component belongs beside it.

    Parameters
    ----------
    weights : tuple of float
        Probabilities of the labels. They sum to one up to rounding (1e-12); a truncated tail has
        to be given to some component.
    components : tuple of Guarantee
        The guarantee under each label.

    Examples
    --------
    >>> from skdpadmm.privacy import GaussianDP, Mixture
    >>> mixture = Mixture((0.5, 0.5), (GaussianDP(0.0), GaussianDP(1.0)))
    >>> mixture.delta(1.0) == 0.5 * GaussianDP(1.0).delta(1.0)
    True
    """

    weights: tuple[float, ...]
    components: tuple[Guarantee, ...]

    def __post_init__(self) -> None:
        """Freeze the sequences and check that they describe a law."""
        object.__setattr__(self, "weights", tuple(float(w) for w in self.weights))
        object.__setattr__(self, "components", tuple(self.components))
        if len(self.weights) != len(self.components) or not self.weights:
            raise ValueError(
                f"Got {len(self.weights)} weights and {len(self.components)} components, "
                "expected one weight for each of at least one component."
            )
        for component in self.components:
            if not isinstance(component, Guarantee):
                raise TypeError(f"Got a component {component!r}, expected a Guarantee.")
        require(min(self.weights) >= 0, "weights", self.weights, "non-negative floats")
        total = math.fsum(self.weights)
        require(abs(total - 1.0) <= 1e-12, "sum(weights)", total, "1; give every label its weight")

    def delta(self, epsilon: float) -> float:
        """Return the average delta at ``epsilon``; mass that rounding lost counts as delta."""
        require_epsilon(epsilon)
        if math.isinf(epsilon):
            return 0.0
        pairs = list(zip(self.weights, self.components, strict=True))
        # Gaussian components, often thousands, are evaluated in one call.
        gaussian = [(w, c.mu) for w, c in pairs if isinstance(c, GaussianDP)]
        terms = [w * c.delta(epsilon) for w, c in pairs if not isinstance(c, GaussianDP)]
        if gaussian:
            w, mu = np.array(gaussian, dtype=np.float64).T
            terms.extend((w * np.exp(gaussian_log_delta(mu, epsilon))).tolist())
        lost = max(0.0, 1.0 - math.fsum(self.weights))
        return min(1.0, math.fsum(terms) + lost)

    def dominates(self, other: Guarantee) -> bool:
        """Whether its delta is plainly at least another's: label by label."""
        return (
            isinstance(other, Mixture)
            and self.weights == other.weights
            and all(a.dominates(b) for a, b in zip(self.components, other.components, strict=True))
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the kind, the weights and every component."""
        return {
            "kind": "mixture",
            "weights": list(self.weights),
            "components": [component.to_dict() for component in self.components],
        }

    def __repr__(self) -> str:
        if len(self.components) > 3:
            return f"Mixture(<{len(self.components)} guarantees>)"
        return f"Mixture(weights={self.weights}, components={self.components})"

    def describe(self) -> str:
        """Return the number of labels and, if there are few, the components."""
        if len(self.components) > 3:
            return f"mixture of {len(self.components)} guarantees"
        return "mixture of " + ", ".join(component.describe() for component in self.components)
