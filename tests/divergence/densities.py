"""Exact divergences by integration, and bounds from attacks."""

import math

import numpy as np
from scipy.stats import beta, norm

from tests.contract.harness import SilentGate, runs_of


class KnownTerm(SilentGate):
    """Hands out hidden terms that a test knows, and adds no noise to what is released."""

    term = 0.0

    def deliver(self, method, release, repetition, value, out, *more):
        out = super().deliver(method, release, repetition, value, out, *more)
        return np.full_like(out, self.term) if method == "hidden_term" else out


class QuickNoise:
    """Noise in no time."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def add_gaussian(self, value, scale, stream):
        return value + scale * self.rng.standard_normal(value.shape)

    def uniform(self, shape, stream):
        return self.rng.random(shape)


def divergence_of_hidden_term(model, one, other, epsilon, *, n_terms=201, **fit):
    """Delta of the first entry of what is solved with a hidden term, the larger of both directions.

    A solution w falls with the term b, so its density is that of b at b(w), times -b'(w).
    """
    logs, curves = [], []
    for X, y in (one, other):
        run = runs_of(model, X, y, **fit)
        gate = run(KnownTerm)[1]
        (term,) = (r for r in gate.plan.releases if r.door == "hidden_term")
        terms = np.linspace(-8.5, 8.5, n_terms) * term.noise_std
        gates = [run(KnownTerm, term=b)[1] for b in terms]
        after = 1 + [p.method for p in gate.passages].index("hidden_term")
        curves.append(np.array([g.passages[after].value.ravel()[0] for g in gates]))
        assert np.all(np.diff(curves[-1]) < 0)
    grid = np.linspace(max(c.min() for c in curves), min(c.max() for c in curves), 100_001)
    for curve in curves:
        b = np.interp(grid, curve[::-1], terms[::-1])
        slope = np.interp(grid, curve[::-1], np.log(-np.gradient(terms, curve))[::-1])
        logs.append(slope - 0.5 * (b / term.noise_std) ** 2)
    width = (grid[1] - grid[0]) / (term.noise_std * math.sqrt(2 * math.pi))
    both = (np.maximum(np.exp(p) - np.exp(epsilon + q), 0).sum() for p, q in (logs, logs[::-1]))
    return float(max(both)) * width, term.guarantee.delta(epsilon)


def mu_lower_bound(without, having, confidence=0.999):
    """Lower bound of mu from an attack: threshold chosen on one half, Clopper-Pearson on the other.

    A mechanism that is mu-GDP lets no test have a true positive rate p and a false positive rate q
    with ``ppf(p) - ppf(q) > mu``.
    """
    half = len(without) // 2
    sign = 1.0 if np.median(having[:half]) >= np.median(without[:half]) else -1.0
    without, having = sign * without, sign * having
    threshold = (np.median(without[:half]) + np.median(having[:half])) / 2
    low, high = _rates(without[half:], having[half:], threshold, (1 - confidence) / 2)
    return float(norm.ppf(low) - norm.ppf(high))


def delta_lower_bound(without, having, epsilon):
    """Lower bound of delta from a threshold test chosen on one half, at 99.9 % confidence."""
    half = len(without) // 2
    best = max(
        np.quantile(having[:half], np.linspace(0.02, 0.98, 49)),
        key=lambda t: np.mean(having[:half] > t) - math.exp(epsilon) * np.mean(without[:half] > t),
    )
    low, high = _rates(without[half:], having[half:], best, 5e-4)
    return low - math.exp(epsilon) * high


def _rates(without, having, threshold, level):
    trials = len(without)
    hits, alarms = int(np.sum(having > threshold)), int(np.sum(without > threshold))
    low = beta.ppf(level, hits, trials - hits + 1) if hits else 0.0
    high = beta.ppf(1 - level, alarms + 1, trials - alarms) if alarms < trials else 1.0
    return low, high
