"""Gaussian releases in which a unit takes part in a random number of rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from skdpadmm.privacy._gaussian import GaussianDP
from skdpadmm.privacy._guarantee import Guarantee
from skdpadmm.privacy._mixture import Mixture
from skdpadmm.privacy._validation import require

# Rare numbers of rounds share one component, the worst among them. What that adds to delta is at
# most this part of delta for few rounds, and at most this probability for many rounds.
_FEW_ROUNDS = 1e-9
_MANY_ROUNDS = 1e-18


def participation_mixture(
    sensitivities: Sequence[float],
    noise_std: float,
    *,
    probability: float,
    n_rounds: int,
    cap: int | None = None,
) -> Guarantee:
    r"""Return the guarantee of a unit that takes part in a random number of rounds.

    .. math:: \delta(\epsilon) = E_N\,\delta_{GDP(\mu_N)}(\epsilon), \qquad
              \mu_j = \frac{1}{s} \sqrt{\Delta_1^2 + \dots + \Delta_j^2}, \qquad
              N = \min(\mathrm{Bin}(n, q), \text{cap})

    Parameters
    ----------
    sensitivities : sequence of float
        The j-th is how far the j-th message of the unit can move what is released in the round of
        that message, at most. One for each of the at most ``min(n_rounds, cap)`` messages; more
        are not read.
    noise_std : float
        Standard deviation of the Gaussian noise of every round, in (0, inf).
    probability : float
        In (0, 1]: the chance q to take part in a round.
    n_rounds : int
        At least 1: the number n of rounds.
    cap : int or None, default=None
        At least 1: the largest number of rounds in which a unit takes part; those that it is
        selected for later go on without it. None is no cap.

    Returns
    -------
    Guarantee
        A :class:`Mixture` of :class:`GaussianDP` over the number of rounds taken part in. Its last
        component is the worst realisation. A plain :class:`GaussianDP` where one number of rounds
        is left, as with ``probability=1``.

    Raises
    ------
    ValueError
        If a parameter is out of range, or there are too few sensitivities.

    Notes
    -----
    Given the rounds in which the unit takes part, its releases are adaptive Gaussian releases with
    sensitivities :math:`\Delta_j`, and the others do not depend on it. As the law of those rounds
    is the same for neighbouring data, delta is the average over them, even when everybody sees who
    takes part in which round. Nothing is gained from secrecy. Where participation is hidden, and it
    is the whole participant that is protected, :class:`PoissonSubsampledGaussian` is tighter; it
    does not hold for a single record, whose participant's other records show who took part.

    Conditions:

    - The schedule does not depend on the data, and the adversary does not choose it.
    - Every round selects independently of the other rounds, so that the number of selections is
      binomial: each participant on its own (Poisson), or a subset of fixed size m of n
      participants, where q is m / n.
    - A release depends on the unit only in the rounds in which it takes part: increments or the
      unit's own messages. It is FALSE for the re-released mean of everybody's states, which
      depends on the unit in every round after its first.
    - Noise is added to every release, whoever takes part.

    Examples
    --------
    >>> from skdpadmm.privacy import participation_mixture, worst_participation
    >>> messages = (1.0,) * 100
    >>> average = participation_mixture(messages, 25.0, probability=0.1, n_rounds=100)
    >>> worst = worst_participation(messages, 25.0, n_rounds=100)
    >>> f"{average.epsilon(1e-6):.3f} on average, {worst.epsilon(1e-6):.3f} at worst"
    '0.580 on average, 1.766 at worst'
    """
    worst = worst_participation(sensitivities, noise_std, n_rounds=n_rounds, cap=cap)
    require(0 < probability <= 1, "probability", probability, "a float in (0, 1]")
    if probability == 1:
        return worst
    most = _most_rounds(n_rounds, cap)
    law = _binomial_law(int(n_rounds), float(probability))
    law = np.append(law[:most], law[most:].sum())
    mu = np.hypot.accumulate([0.0, *_ratios(sensitivities[:most], noise_std)])
    few = int(np.searchsorted(np.cumsum(law), _FEW_ROUNDS))
    n_many = int(np.searchsorted(np.cumsum(law[::-1]), _MANY_ROUNDS))
    # Neighbouring numbers of rounds in groups, each represented by its last, the worst.
    last = np.unique([*range(few, most + 1 - n_many), most])
    if last.size == 1:
        return worst
    weights = np.add.reduceat(law, np.append(0, last[:-1] + 1))
    return Mixture(
        tuple(weights.tolist()), (*(GaussianDP(m) for m in mu[last[:-1]].tolist()), worst)
    )


def worst_participation(
    sensitivities: Sequence[float], noise_std: float, *, n_rounds: int, cap: int | None = None
) -> GaussianDP:
    """Return the guarantee of a unit that takes part in every round, or in as many as it may.

    This is the worst realisation of :func:`participation_mixture`, and belongs beside it. It holds
    for every schedule.

    Parameters
    ----------
    sensitivities : sequence of float
        The j-th is how far the j-th message of the unit can move what is released, at most.
        At least ``min(n_rounds, cap)`` of them.
    noise_std : float
        Standard deviation of the Gaussian noise of every round, in (0, inf).
    n_rounds : int
        At least 1.
    cap : int or None, default=None
        At least 1: the largest number of rounds in which a unit takes part. None is no cap.

    Returns
    -------
    GaussianDP
        With mu the root of the sum of squares of ``sensitivities / noise_std``.

    Raises
    ------
    ValueError
        If a parameter is out of range, or there are too few sensitivities.

    Examples
    --------
    >>> from skdpadmm.privacy import worst_participation
    >>> worst_participation((3.0, 4.0), 10.0, n_rounds=2)
    GaussianDP(mu=0.5)
    >>> worst_participation((3.0, 4.0), 10.0, n_rounds=2, cap=1)
    GaussianDP(mu=0.3)
    """
    require(isinstance(n_rounds, Integral) and n_rounds >= 1, "n_rounds", n_rounds, "an int >= 1")
    require(
        cap is None or (isinstance(cap, Integral) and cap >= 1), "cap", cap, "an int >= 1 or None"
    )
    require(0 < noise_std < math.inf, "noise_std", noise_std, "a float in (0, inf)")
    most = _most_rounds(n_rounds, cap)
    if len(sensitivities) < most:
        raise ValueError(
            f"Got {len(sensitivities)} sensitivities, expected {most}, "
            "one for each message that the unit may send."
        )
    for sensitivity in sensitivities[:most]:
        require(0 <= sensitivity < math.inf, "sensitivity", sensitivity, "a float in [0, inf)")
    return GaussianDP(math.hypot(*_ratios(sensitivities[:most], noise_std)))


def _most_rounds(n_rounds: int, cap: int | None) -> int:
    return int(n_rounds if cap is None else min(n_rounds, cap))


def _ratios(sensitivities: Sequence[float], noise_std: float) -> list[float]:
    return [float(sensitivity) / float(noise_std) for sensitivity in sensitivities]


def _binomial_law(n: int, p: float) -> NDArray[np.float64]:
    """Return the probabilities (n + 1,) of 0 to n successes, for p in (0, 1).

    By ratios of neighbours from the mode on, then normalised: exact to rounding for every n, where
    logarithms of factorials cancel.
    """
    successes = np.arange(n)
    ratios = (n - successes) / (successes + 1) * (p / (1.0 - p))
    mode = min(int((n + 1) * p), n)
    below, above = np.cumprod(1.0 / ratios[:mode][::-1]), np.cumprod(ratios[mode:])
    law = np.concatenate([below[::-1], [1.0], above])
    return np.asarray(law / law.sum(), dtype=np.float64)
