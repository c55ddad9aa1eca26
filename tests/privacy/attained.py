"""What releases do reveal: oracles for bounds that claim to be above it."""

import math
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr, ndtr


def gaussian_delta(mu, epsilon):
    """Of N(0, 1) and N(mu, 1), at epsilons of either sign."""
    if mu == 0:
        return np.maximum(0.0, -np.expm1(epsilon))
    first, second = 0.5 * mu - epsilon / mu, -0.5 * mu - epsilon / mu
    return ndtr(first) - np.exp(epsilon + log_ndtr(second))


def log_density(x, width):
    """Laplace noise of scale one, plus uniform noise on (0, width)."""
    if width == 0:
        return -np.abs(x) - math.log(2)
    edge = np.log(-np.expm1(-width) / (2 * width))
    inside = np.clip(x, 0, width)
    middle = np.log((2 - np.exp(-inside) - np.exp(inside - width)) / (2 * width))
    return np.where(x < 0, edge + x, np.where(x > width, edge + width - x, middle))


def distribution(x, width):
    """Its distribution function at 0 <= x."""
    if width == 0:
        return 1 - 0.5 * np.exp(-x)
    inside = np.minimum(x, width)
    middle = (2 * inside + np.exp(-inside) - np.exp(inside - width)) / (2 * width)
    beyond = 1 + np.expm1(-width) / (2 * width) * np.exp(inside - x)
    return np.where(x > width, beyond, middle)


@lru_cache(maxsize=4)
def lower_law(parts, gaussian_mu, n_cells=2**18):
    """Positive losses, each rounded DOWN to a grid, and their law, by convolution on a circle.

    Rounding down makes every level of the privacy profile smaller.
    """
    top = sum(shift * count for _, shift, count in parts) + 9 * gaussian_mu + gaussian_mu**2
    cell = 2.001 * top / n_cells
    transform = np.ones(n_cells // 2 + 1, dtype=complex)
    for width, shift, count in parts:
        x = np.linspace(0.0, width + shift, 200_001)
        # Beyond both ends the loss is plus and minus the shift. It falls in between.
        losses = log_density(x, width) - log_density(x - shift, width)
        below = distribution(x, width)
        losses = np.concatenate([[shift], losses[1:], [-shift]])
        chances = np.concatenate([below[:1], np.diff(below), [1 - below[-1]]])
        law = np.zeros(n_cells)
        np.add.at(law, np.floor(losses / cell - 1e-6).astype(int) % n_cells, chances)
        transform *= np.fft.rfft(law) ** count
    if gaussian_mu:
        edges = np.arange(-n_cells // 2, n_cells // 2 + 1) * cell
        law = np.diff(ndtr((edges - gaussian_mu**2 / 2) / gaussian_mu))
        transform *= np.fft.rfft(np.roll(law, -(n_cells // 2)))
    positive = np.arange(n_cells // 2)  # losses below zero count for nothing
    return positive * cell, np.fft.irfft(transform, n_cells)[positive]


def attained_delta(parts, epsilon, gaussian_mu=0.0):
    """A delta that releases do attain, nearly; parts are (width, shift, count), in noise scales."""
    losses, mass = lower_law(tuple(parts), gaussian_mu)
    return float(mass @ np.maximum(0.0, -np.expm1(epsilon - losses))) - 1e-12
