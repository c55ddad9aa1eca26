"""What is public before a fit: the facts of the problem and the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

from skdpadmm.losses import Loss
from skdpadmm.penalties import Penalty
from skdpadmm.privacy import Neighboring


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The total that one fit may spend.

    Attributes
    ----------
    epsilon : float
        In (0, inf]; infinite: not private.
    delta : float
        In (0, 1).
    observer : str, default="model"
        Who the budget is spent against: whoever sees the released model.
    """

    epsilon: float
    delta: float
    observer: str = "model"

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise ValueError(f"Got epsilon={self.epsilon}, expected a float in (0, inf].")
        if not 0 < self.delta < 1:
            raise ValueError(
                f"Got delta={self.delta}, expected a float in (0, 1)."
                " Choose it well below 1 / n_samples."
            )

    @property
    def is_private(self) -> bool:
        """Whether the budget is finite."""
        return math.isfinite(self.epsilon)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Public facts of a problem: all that a plan may depend on.

    Attributes
    ----------
    n_samples : int
        Number of records, public under both neighbouring relations.
    n_parameters : int
        Parameters of one score, the intercept included.
    loss : Loss
        Loss of a record, in scaled coordinates.
    penalty : Penalty
        Penalty of the mean loss, in the user's coefficients.
    neighboring : Neighboring
        What may differ between two neighbouring data sets.
    row_norm : float
        Bound of the Euclidean norm of an augmented row.
    rounding : float
        Factor, slightly above one, by which float64 rounding can widen a sensitivity.
    max_iter : int
        Length of the iteration, fixed in advance.
    schema : str, default=""
        Digest of the declared bounds: seeded fits under other bounds share no noise.
    unit : str, default="record"
        Whose contribution is protected.

    Raises
    ------
    ValueError
        Where a bound could not bound anything.
    """

    n_samples: int
    n_parameters: int
    loss: Loss
    penalty: Penalty
    neighboring: Neighboring
    row_norm: float
    rounding: float
    max_iter: int
    schema: str = ""
    unit: str = "record"

    def __post_init__(self) -> None:
        if self.n_samples < 1:
            raise ValueError(f"Got n_samples={self.n_samples}, expected at least 1.")
        if not self.rounding >= 1:
            raise ValueError(f"Got rounding={self.rounding}, expected a factor of at least 1.")
        if not self.row_norm > 0:
            raise ValueError(f"Got row_norm={self.row_norm}, expected a float in (0, inf].")
