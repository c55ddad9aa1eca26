"""Additive secret sharing of vectors of integers, modulo a power of two up to 2**64.

A secret is split into shares that are uniform and add up to it. Each curator receives one share of
every secret and sends their sum; these sums add up to that of all secrets. Whoever lacks one
curator's shares sees uniform numbers, beside that sum.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "add_shares",
    "centred",
    "residues_of",
    "share_and_sum",
    "split",
    "uniform_residues",
]

# Shares are drawn and added up for as many secrets at once as this many numbers serve.
CHUNK = 2**20

Words = NDArray[np.uint64]
Bits = Callable[[int], Words]


def system_bits(size: int) -> Words:
    """Words from the operating system's generator."""
    return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


def uniform_residues(shape: tuple[int, ...], modulus: int, bits: Bits = system_bits) -> Words:
    """Independent residues of that shape, each as likely as any other.

    `bits` maps a number to as many uniform 64-bit words, by default of the operating system.
    """
    return np.asarray(bits(math.prod(shape)) & np.uint64(modulus - 1)).reshape(shape)


def add_shares(shares: Words, modulus: int, axis: int = 0) -> Words:
    """Sum of residues along an axis, modulo the modulus."""
    # Words wrap around, modulo a multiple of the modulus.
    return np.asarray(shares.sum(axis=axis, dtype=np.uint64) & np.uint64(modulus - 1))


def split(secrets: Words, n_curators: int, modulus: int, bits: Bits = system_bits) -> Words:
    """Shares (n_agents, n_curators, ...) of secrets (n_agents, ...), one for each curator.

    Any ``n_curators - 1`` shares of a secret are independent and uniform; all of them add up to it.
    """
    n_agents, *shape = secrets.shape
    drawn = uniform_residues((n_agents, n_curators - 1, *shape), modulus, bits)
    last = (secrets - add_shares(drawn, modulus, axis=1)) & np.uint64(modulus - 1)
    return np.concatenate([drawn, last[:, None]], axis=1)


def centred(residues: Words, modulus: int) -> NDArray[np.int64]:
    """The integer in [-modulus / 2, modulus / 2) that each residue stands for."""
    half = np.uint64(modulus // 2)
    return (((residues + half) & np.uint64(modulus - 1)) - half).astype(np.int64)


def residues_of(integers: NDArray[np.int64], modulus: int) -> Words:
    """Residues of signed integers."""
    return integers.astype(np.uint64) & np.uint64(modulus - 1)


def share_and_sum(secrets: Words, n_curators: int, modulus: int, bits: Bits = system_bits) -> Words:
    """Run the protocol among honest agents: everybody learns the sum of all secrets.

    Secrets are residues of shape (n_agents, ...), each split among one or more curators.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.secret_sharing import centred, residues_of, share_and_sum
    >>> secrets = residues_of(np.array([[5], [-7], [4]]), 128)
    >>> centred(share_and_sum(secrets, 3, 128), 128)
    array([2])
    """
    size = max(1, math.prod(secrets.shape[1:]) * n_curators)
    step = max(1, CHUNK // size)
    received = np.zeros((n_curators, *secrets.shape[1:]), dtype=np.uint64)
    for start in range(0, len(secrets), step):
        shares = split(secrets[start : start + step], n_curators, modulus, bits)
        received = add_shares(np.concatenate([received[None], shares]), modulus)
    return add_shares(received, modulus)
