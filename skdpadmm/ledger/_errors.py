"""What a ledger refuses."""

from __future__ import annotations

from typing import Any


class LedgerError(RuntimeError):
    """A ledger that cannot be read, written or summed; nothing was stored.

    It is no ``ValueError``: no parameter is wrong, the state of the world is.
    """


class PrivacyBudgetExceeded(LedgerError):
    """A fit, or a search, would pass a limit; nothing was stored and no data was used.

    Parameters
    ----------
    message : str
    epsilon_left : float
        Epsilon at ``delta`` of the largest Gaussian release that there is still room for.
    epsilon_spent : float
        What was spent before.
    epsilon : float
        The limit.
    delta : float
        Of the limit.

    Examples
    --------
    >>> from skdpadmm.ledger import PrivacyBudgetExceeded
    >>> PrivacyBudgetExceeded("too much", 0.1, 0.9, 1.0, 1e-6).epsilon_left
    0.1
    """

    def __init__(
        self,
        message: str,
        epsilon_left: float,
        epsilon_spent: float,
        epsilon: float,
        delta: float,
    ) -> None:
        super().__init__(message)
        self.epsilon_left = epsilon_left
        self.epsilon_spent = epsilon_spent
        self.epsilon = epsilon
        self.delta = delta

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with all numbers: it is raised in the processes of a search."""
        numbers = (self.epsilon_left, self.epsilon_spent, self.epsilon, self.delta)
        return type(self), (str(self), *numbers)
