"""The group lasso penalty."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np

from ._group_prox import GroupIndex, group_operator
from ._penalty import ENTRYWISE, FloatArray, Penalty, ProximalOperator, check_strength

# Units of features, one over the other.
_FARTHEST = 1e100


@dataclass(frozen=True)
class GroupLasso(Penalty):
    r"""Norms of groups of coefficients, :math:`r(w) = \lambda \sum_g \sqrt{|g|}\, \|w_g\|_2`.

    A group is zero as a whole or not at all. With K columns each group of features has one norm per
    column, so that columns are selected on their own.

    Parameters
    ----------
    strength : float
        The factor :math:`\lambda`, in [0, inf).
    groups : tuple of tuple of int
        The indices of the features of each group; each of the p features is in exactly one.

    Raises
    ------
    ValueError
        If `strength` is outside [0, inf), a group is empty, or `groups` do not contain each of
        0, ..., p - 1 exactly once.

    Examples
    --------
    >>> import numpy as np
    >>> penalty = GroupLasso(strength=1.0, groups=((0, 1), (2,)))
    >>> round(penalty.value(np.array([3.0, 4.0, -2.0])) - 5.0 * 2.0**0.5, 12)
    2.0
    >>> penalty.prox(np.array([0.6, 0.8, -2.0]), step=1.0)
    array([ 0.,  0., -1.])
    """

    strength: float
    groups: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        """Refuse a strength without meaning, and what is no partition of the features."""
        check_strength("strength", self.strength)
        groups = tuple(tuple(operator.index(i) for i in group) for group in self.groups)
        object.__setattr__(self, "groups", groups)
        members = sorted(i for group in groups for i in group)
        if not groups or not all(groups) or members != list(range(len(members))):
            raise ValueError(
                f"Got groups={groups!r}, expected each of the features 0, ..., p - 1 in exactly "
                "one group, and no empty group. Give a feature without company a group of its own."
            )

    @property
    def strong_convexity(self) -> float:
        """0."""
        return 0.0

    def value(self, coef: FloatArray) -> float:
        """See :meth:`Penalty.value`."""
        index = GroupIndex.of(self.groups)
        index.check(coef)
        norms = index.norms(coef.reshape(len(coef), -1)[index.order])
        return float(self.strength * (index.weights[:, None] * norms).sum())

    def proximal_operator(self, step: float, metric: FloatArray | None = None) -> ProximalOperator:
        """See :meth:`Penalty.proximal_operator`; a scalar equation per group if M is diagonal."""
        return group_operator(step, metric, self.strength, GroupIndex.of(self.groups))

    def proximal_rounding(self, scale: FloatArray, condition: float | None = None) -> float:
        """See :meth:`Penalty.proximal_rounding`; not where M is full: its operator iterates.

        Nor where units are so far apart that squares of what is compared leave the floats.
        """
        if self.strength == 0:
            return ENTRYWISE
        is_close = np.max(scale) <= _FARTHEST * np.min(scale)
        return ENTRYWISE if condition is None and is_close else np.inf

    def scaled(self, factor: float) -> GroupLasso:
        """See :meth:`Penalty.scaled`."""
        check_strength("factor", factor)
        return GroupLasso(factor * self.strength, self.groups)
