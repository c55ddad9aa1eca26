"""Additive secret sharing of vectors of integers, modulo a public number.

A secret is split into shares that are uniform and add up to it. Each curator receives one share of
every secret and sends their sum; these sums add up to that of all secrets. Whoever lacks one
curator's shares sees uniform numbers, beside that sum.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "add_shares",
    "centred",
    "is_modulus",
    "residues_of",
    "share_and_sum",
    "split",
    "uniform_residues",
]

WORD = 2**64
# Sums of two residues have to fit into a word; modulo the word itself they wrap around.
LARGEST_MODULUS = 2**63
# Shares are drawn and added up for as many secrets at once as this many numbers serve.
CHUNK = 2**20

Words = NDArray[np.uint64]
Bits = Callable[[int], Words]


def is_modulus(modulus: object) -> bool:
    """Whether words can be added under it: an int in [2, 2**63], or 2**64."""
    if not isinstance(modulus, Integral) or isinstance(modulus, bool):
        return False
    return 2 <= int(modulus) <= LARGEST_MODULUS or int(modulus) == WORD


def system_bits(size: int) -> Words:
    """Words from the operating system's generator."""
    return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


def uniform_residues(shape: tuple[int, ...], modulus: int, bits: Bits = system_bits) -> Words:
    """Independent residues of that shape, each as likely as any other.

    `bits` maps a number to as many uniform 64-bit words, by default of the operating system.
    """
    size = int(np.prod(shape))
    if WORD % modulus == 0:
        return np.asarray(bits(size) & np.uint64(modulus - 1)).reshape(shape)
    # Words beyond the last whole multiple would favour small residues.
    limit = np.uint64(WORD // modulus * modulus - 1)
    drawn = np.array(bits(size), dtype=np.uint64)
    while len(refused := np.flatnonzero(drawn > limit)):
        drawn[refused] = bits(len(refused))
    return (drawn % np.uint64(modulus)).reshape(shape)


def add_shares(shares: Words, modulus: int, axis: int = 0) -> Words:
    """Sum of residues along an axis, modulo the modulus."""
    if WORD % modulus == 0:
        total = shares.sum(axis=axis, dtype=np.uint64)
        return np.asarray(total & np.uint64(modulus - 1))
    terms, m = np.moveaxis(shares, axis, 0), np.uint64(modulus)
    if not len(terms):
        return np.zeros(terms.shape[1:], dtype=np.uint64)
    while len(terms) > 1:
        half = len(terms) // 2
        added = (terms[:half] + terms[half : 2 * half]) % m
        terms = np.concatenate([added, terms[2 * half :]])
    return np.asarray(terms[0])


def split(secrets: Words, n_curators: int, modulus: int, bits: Bits = system_bits) -> Words:
    """Shares (n_agents, n_curators, ...) of secrets (n_agents, ...), one for each curator.

    Any ``n_curators - 1`` shares of a secret are independent and uniform; all of them add up to it.
    """
    n_agents, *shape = secrets.shape
    drawn = uniform_residues((n_agents, n_curators - 1, *shape), modulus, bits)
    # The negative of their sum, modulo the word or below the modulus.
    rest, m = add_shares(drawn, modulus, axis=1), np.uint64(modulus % WORD)
    last = add_shares(np.stack([secrets, m - rest]), modulus)
    return np.concatenate([drawn, last[:, None]], axis=1)


def centred(residues: Words, modulus: int) -> NDArray[np.int64]:
    """The integer in [-modulus / 2, modulus / 2) that each residue stands for."""
    half = np.uint64((modulus + 1) // 2)
    # Modulo the word the subtraction wraps around, which is what is meant.
    negative = residues - np.uint64(modulus % WORD)
    return np.where(residues >= half, negative, residues).astype(np.int64)


def residues_of(integers: NDArray[np.int64], modulus: int) -> Words:
    """Residues of signed integers."""
    if WORD % modulus == 0:
        return integers.astype(np.uint64) & np.uint64(modulus - 1)
    return np.mod(integers, np.int64(modulus)).astype(np.uint64)


def share_and_sum(secrets: Words, n_curators: int, modulus: int, bits: Bits = system_bits) -> Words:
    """Run the protocol among honest agents: everybody learns the sum of all secrets.

    Secrets are residues of shape (n_agents, ...), each split among one or more curators.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.secret_sharing import centred, residues_of, share_and_sum
    >>> secrets = residues_of(np.array([[5], [-7], [4]]), 101)
    >>> centred(share_and_sum(secrets, 3, 101), 101)
    array([2])
    """
    size = max(1, int(np.prod(secrets.shape[1:])) * n_curators)
    step = max(1, CHUNK // size)
    received = np.zeros((n_curators, *secrets.shape[1:]), dtype=np.uint64)
    for start in range(0, len(secrets), step):
        shares = split(secrets[start : start + step], n_curators, modulus, bits)
        received = add_shares(np.concatenate([received[None], shares]), modulus)
    return add_shares(received, modulus)
