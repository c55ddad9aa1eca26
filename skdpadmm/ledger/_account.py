"""Limits of an account: what is left of them, and what would pass them."""

from __future__ import annotations

from typing import Any

from skdpadmm import privacy
from skdpadmm.privacy import GaussianDP, Guarantee
from skdpadmm.privacy.claims import is_within


class LedgerError(RuntimeError):
    """A ledger that cannot be read or written; nothing was stored."""


class PrivacyBudgetExceeded(LedgerError):
    """A fit, or a search, would pass a limit; nothing was stored and no data was used.

    Parameters
    ----------
    message : str
    epsilon_left : float
        Epsilon at ``delta`` of the largest Gaussian release that there is still room for; at a
        delta of 0 that of the largest pure one.
    epsilon_spent : float
        What was spent before.
    epsilon, delta : float
        The limit.
    """

    def __init__(
        self, message: str, epsilon_left: float, epsilon_spent: float, epsilon: float, delta: float
    ) -> None:
        super().__init__(message)
        self.epsilon_left, self.epsilon_spent = epsilon_left, epsilon_spent
        self.epsilon, self.delta = epsilon, delta

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with all numbers: it is raised in the processes of a search."""
        numbers = (self.epsilon_left, self.epsilon_spent, self.epsilon, self.delta)
        return type(self), (str(self), *numbers)


def left_of(spent: Guarantee, epsilon: float, delta: float) -> float:
    """Return epsilon at ``delta`` of the largest Gaussian release that keeps the limit.

    No Gaussian release has a delta of zero: epsilons of pure ones add up.
    """
    if delta == 0.0:
        return max(epsilon - spent.epsilon(0.0), 0.0)

    def fits(mu: float) -> bool:
        return is_within(privacy.compose(spent, GaussianDP(mu)), epsilon, delta)

    if not fits(0.0):
        return 0.0
    low, high = 0.0, 1.001 * privacy.gaussian_mu(epsilon, delta)
    # Every step of a privacy loss distribution takes a moment, and a person reads two digits.
    for _ in range(40 if isinstance(spent, GaussianDP) else 10):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return GaussianDP(low).epsilon(delta)
