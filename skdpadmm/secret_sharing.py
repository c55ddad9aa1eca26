"""Secret sharing of vectors of integers, so that curators learn their sum and nothing else.

Additive shares, modulo a power of two up to 2**64, are uniform and add up to their secret. Each
curator receives one share of every secret and sends their sum; these sums add up to that of all
secrets. Whoever lacks one curator's shares sees uniform numbers, beside that sum.

Shamir's shares, modulo a prime below 2**61 or 2**61 - 1 itself, are values of a polynomial that is
random but for its value at 0, the secret [1]_. Sums of shares are values of the sum of polynomials,
so those of any `threshold` curators reconstruct the sum of all secrets, and fewer see uniform
numbers. Two sums over different secrets would reveal the difference: before anything is
reconstructed curators agree whose shares all of them add up.

.. [1] A. Shamir, "How to Share a Secret", Communications of the ACM, 1979.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "PRIME",
    "add_shares",
    "centred",
    "reconstruct",
    "residues_of",
    "share_and_sum",
    "split",
    "split_by_polynomials",
    "uniform_residues",
]

# The largest modulus of Shamir's shares: eight residues still fit into a word.
PRIME = 2**61 - 1

# Shares are drawn and added up for as many secrets at once as this many numbers serve.
CHUNK = 2**20

Words = NDArray[np.uint64]
Bits = Callable[[int], Words]


def system_bits(size: int) -> Words:
    """Words from the operating system's generator."""
    return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


def _reduced(words: Words, modulus: int) -> Words:
    """Words modulo a power of two or a prime."""
    if modulus & (modulus - 1) == 0:
        return np.asarray(words & np.uint64(modulus - 1))
    return np.asarray(words % np.uint64(modulus))


def uniform_residues(shape: tuple[int, ...], modulus: int, bits: Bits = system_bits) -> Words:
    """Independent residues of that shape, each as likely as any other.

    `bits` maps a number to as many uniform 64-bit words, by default of the operating system.
    """
    # Words are cut to as many bits as the modulus has, and drawn again where they are too large.
    mask = np.uint64((1 << (modulus - 1).bit_length()) - 1)
    drawn = np.asarray(bits(math.prod(shape)) & mask)
    while len(large := np.flatnonzero(drawn > np.uint64(modulus - 1))):
        drawn[large] = bits(len(large)) & mask
    return drawn.reshape(shape)


def add_shares(shares: Words, modulus: int, axis: int = 0) -> Words:
    """Sum of residues along an axis, modulo the modulus."""
    if modulus & (modulus - 1) == 0:
        # Words wrap around, modulo a multiple of the modulus.
        return _reduced(shares.sum(axis=axis, dtype=np.uint64), modulus)
    # Of halves of words 2**32 add up without wrapping around.
    halves = shares & np.uint64(2**32 - 1), shares >> np.uint64(32)
    low, high = (_reduced(half.sum(axis=axis, dtype=np.uint64), modulus) for half in halves)
    return _reduced(low + _times(high, 2**32, modulus), modulus)


def split(secrets: Words, n_curators: int, modulus: int, bits: Bits = system_bits) -> Words:
    """Shares (n_agents, n_curators, ...) of secrets (n_agents, ...), one for each curator.

    Any ``n_curators - 1`` shares of a secret are independent and uniform; all of them add up to it.
    """
    n_agents, *shape = secrets.shape
    drawn = uniform_residues((n_agents, n_curators - 1, *shape), modulus, bits)
    last = _reduced(secrets - add_shares(drawn, modulus, axis=1), modulus)
    return np.concatenate([drawn, last[:, None]], axis=1)


def _times(residues: Words, factor: int, modulus: int) -> Words:
    """Product of residues and a number, modulo a prime, three bits of the number at a time."""
    first, *digits = map(np.uint64, f"{factor % modulus:o}")
    product = _reduced(residues * first, modulus)
    for digit in digits:
        # Eight residues fit into a word, and no more.
        product = _reduced(product * np.uint64(8), modulus)
        product = _reduced(product + _reduced(residues * digit, modulus), modulus)
    return product


def split_by_polynomials(
    secrets: Words, n_curators: int, threshold: int, modulus: int = PRIME, bits: Bits = system_bits
) -> Words:
    """Shamir's shares (n_agents, n_curators, ...) of secrets (n_agents, ...).

    The j-th curator gets the value at j of a polynomial of degree ``threshold - 1``. Any
    ``threshold - 1`` shares of a secret are independent and uniform. The modulus is a prime of at
    most `PRIME`.
    """
    if not 2 <= threshold <= n_curators < modulus <= PRIME:
        raise ValueError(
            f"Got threshold={threshold}, n_curators={n_curators} and modulus={modulus}, expected"
            f" 2 <= threshold <= n_curators < modulus <= {PRIME}: else shares tell the secret."
        )
    n_agents, *shape = secrets.shape
    random = uniform_residues((threshold - 1, n_agents, *shape), modulus, bits)
    shares = np.zeros((n_agents, n_curators, *shape), dtype=np.uint64)
    for curator in range(n_curators):
        value = shares[:, curator]
        for coefficient in (*random, secrets):
            value[:] = _reduced(_times(value, curator + 1, modulus) + coefficient, modulus)
    return shares


def reconstruct(shares: Words, curators: Sequence[int], modulus: int = PRIME) -> Words:
    """The secret of which these curators, counted from 0, have Shamir's shares.

    Shares of fewer than `threshold` curators give a number that has nothing to do with it.
    """
    terms, points = [], [curator + 1 for curator in curators]
    if len(set(points)) < len(points):
        raise ValueError(f"Got curators={list(curators)}, expected distinct ones.")
    for share, point in zip(shares, points, strict=True):
        # Lagrange's polynomial of this point, at 0.
        others = [other for other in points if other != point]
        above, below = math.prod(others), math.prod(other - point for other in others)
        terms.append(_times(share, above * pow(below, -1, modulus), modulus))
    return add_shares(np.stack(terms), modulus)


def centred(residues: Words, modulus: int) -> NDArray[np.int64]:
    """The integer in [-modulus / 2, modulus / 2) that each residue stands for."""
    half = np.uint64(modulus // 2)
    return (_reduced(residues + half, modulus) - half).astype(np.int64)


def residues_of(integers: NDArray[np.int64], modulus: int) -> Words:
    """Residues of signed integers."""
    if modulus & (modulus - 1) == 0:
        return _reduced(integers.astype(np.uint64), modulus)
    return np.asarray(integers % np.int64(modulus)).astype(np.uint64)


def share_and_sum(
    secrets: Words, n_curators: int, modulus: int, threshold: int = 0, bits: Bits = system_bits
) -> Words:
    """Run the protocol among honest agents: everybody learns the sum of all secrets.

    Secrets are residues of shape (n_agents, ...), each split among one or more curators. With a
    threshold shares are Shamir's, and the first that many curators reconstruct the sum.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.secret_sharing import PRIME, centred, residues_of, share_and_sum
    >>> secrets = residues_of(np.array([[5], [-7], [4]]), 128)
    >>> centred(share_and_sum(secrets, 3, 128), 128)
    array([2])
    >>> secrets = residues_of(np.array([[5], [-7], [4]]), PRIME)
    >>> centred(share_and_sum(secrets, 3, PRIME, threshold=2), PRIME)
    array([2])
    """
    size = max(1, math.prod(secrets.shape[1:]) * n_curators)
    step = max(1, CHUNK // size)
    received = np.zeros((n_curators, *secrets.shape[1:]), dtype=np.uint64)
    for start in range(0, len(secrets), step):
        some = secrets[start : start + step]
        if threshold:
            shares = split_by_polynomials(some, n_curators, threshold, modulus, bits)
        else:
            shares = split(some, n_curators, modulus, bits)
        received = add_shares(np.concatenate([received[None], shares]), modulus)
    if threshold:
        return reconstruct(received[:threshold], range(threshold), modulus)
    return add_shares(received, modulus)
