"""Additive secret sharing of vectors of integers, modulo a public number.

A secret is split into shares that are uniform and add up to it. Each curator gets one share of
every secret, adds up what it got and says the sum; the sums add up to that of all secrets. Whoever
misses one curator's shares sees uniform numbers, beside that sum.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

WORD = 2**64
# Sums of two residues have to fit into a word; modulo the word itself they wrap around.
LARGEST_MODULUS = 2**63
# Shares are drawn and added up for as many secrets at once as this many numbers serve.
CHUNK = 2**20

Words = NDArray[np.uint64]
Bits = Callable[[int], Words]


def is_modulus(modulus: object) -> bool:
    """Whether words can be added under it."""
    if not isinstance(modulus, Integral) or isinstance(modulus, bool):
        return False
    return 2 <= int(modulus) <= LARGEST_MODULUS or int(modulus) == WORD


def check_modulus(modulus: object) -> int:
    """Refuse what is no modulus that words can be added under.

    Parameters
    ----------
    modulus : object

    Returns
    -------
    int

    Raises
    ------
    ValueError
        Says what was expected.
    """
    if is_modulus(modulus):
        return int(modulus)  # type: ignore[call-overload]
    raise ValueError(f"Got modulus={modulus!r}, expected an int in [2, 2**63], or 2**64.")


def system_bits(size: int) -> Words:
    """Words from the operating system's generator."""
    return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


def uniform_residues(shape: tuple[int, ...], modulus: int, bits: Bits = system_bits) -> Words:
    """Independent residues, each as likely as any other.

    Parameters
    ----------
    shape : tuple of int
    modulus : int
    bits : callable, default=system_bits
        Maps a number to as many uniform 64-bit words.

    Returns
    -------
    ndarray of uint64 of that shape
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
    """Sum along an axis, modulo the modulus.

    Parameters
    ----------
    shares : ndarray of uint64
        Residues.
    modulus : int
    axis : int, default=0

    Returns
    -------
    ndarray of uint64
    """
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
    """Shares of each secret, one for each curator.

    Parameters
    ----------
    secrets : ndarray of uint64 of shape (n_agents, ...)
        Residues.
    n_curators : int
        At least 1; all but one share of each secret are drawn.
    modulus : int
    bits : callable, default=system_bits

    Returns
    -------
    ndarray of uint64 of shape (n_agents, n_curators, ...)
        Any ``n_curators - 1`` shares of a secret are independent and uniform; all of them add up
        to it.
    """
    n_agents, *shape = secrets.shape
    drawn = uniform_residues((n_agents, n_curators - 1, *shape), modulus, bits)
    last = _difference(secrets, add_shares(drawn, modulus, axis=1), modulus)
    return np.concatenate([drawn, last[:, None]], axis=1)


def centred(residues: Words, modulus: int) -> NDArray[np.int64]:
    """The integer in [-modulus / 2, modulus / 2) that each residue stands for.

    Parameters
    ----------
    residues : ndarray of uint64
    modulus : int

    Returns
    -------
    ndarray of int64
    """
    half = np.uint64((modulus + 1) // 2)
    # Modulo the word the subtraction wraps around, which is what is meant.
    negative = residues - np.uint64(modulus % WORD)
    return np.where(residues >= half, negative, residues).astype(np.int64)


def residues_of(integers: NDArray[np.int64], modulus: int) -> Words:
    """Residues of signed integers.

    Parameters
    ----------
    integers : ndarray of int64
    modulus : int

    Returns
    -------
    ndarray of uint64
    """
    if WORD % modulus == 0:
        return integers.astype(np.uint64) & np.uint64(modulus - 1)
    return np.mod(integers, np.int64(modulus)).astype(np.uint64)


def share_and_sum(secrets: Words, n_curators: int, modulus: int, bits: Bits = system_bits) -> Words:
    """Run the protocol among honest agents: the sum of all secrets is what everybody learns.

    Parameters
    ----------
    secrets : ndarray of uint64 of shape (n_agents, ...)
        Residues.
    n_curators : int
    modulus : int
    bits : callable, default=system_bits

    Returns
    -------
    ndarray of uint64
        Of the shape of one secret.
    """
    size = max(1, int(np.prod(secrets.shape[1:])) * n_curators)
    step = max(1, CHUNK // size)
    received = np.zeros((n_curators, *secrets.shape[1:]), dtype=np.uint64)
    for start in range(0, len(secrets), step):
        shares = split(secrets[start : start + step], n_curators, modulus, bits)
        arrived = add_shares(shares, modulus, axis=0)
        received = add_shares(np.stack([received, arrived]), modulus, axis=0)
    return add_shares(received, modulus, axis=0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Transcript:
    """Everything that is said in one run of the protocol, for looking at what a coalition learns.

    A fit keeps none.

    Attributes
    ----------
    shares : ndarray of uint64 of shape (n_agents, n_curators, ...)
        From each agent to each curator, through a secure channel.
    modulus : int

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.secret_sharing import Transcript
    >>> said = Transcript.of(np.array([[5], [-7], [4]]), modulus=101)
    >>> said.shares.shape, said.total
    ((3, 3, 1), array([2]))
    >>> said.learned_by({0}), said.learned_by({0, 2})
    (array([-3]), array([-7]))
    """

    shares: Words
    modulus: int

    @classmethod
    def of(
        cls,
        integers: NDArray[np.int64],
        *,
        modulus: int,
        n_curators: int | None = None,
        bits: Bits = system_bits,
    ) -> Transcript:
        """Run the protocol.

        Parameters
        ----------
        integers : ndarray of int64 of shape (n_agents, ...)
            Secrets, signed.
        modulus : int
        n_curators : int, default=None
            None: every agent is a curator.
        bits : callable, default=system_bits

        Returns
        -------
        Transcript

        Raises
        ------
        ValueError
            If the secrets are not whole numbers of at least one agent, or `modulus` or `n_curators`
            is out of range.
        """
        modulus = check_modulus(modulus)
        integers = np.asarray(integers)
        if not integers.ndim or not len(integers) or integers.dtype.kind not in "iu":
            raise ValueError(
                f"Got integers of shape {integers.shape} and type {integers.dtype}, expected whole"
                " numbers of shape (n_agents, ...) for at least one agent."
            )
        integers = integers.astype(np.int64)
        count = len(integers) if n_curators is None else n_curators
        if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
            raise ValueError(f"Got n_curators={n_curators!r}, expected an int of at least 1.")
        return cls(
            shares=split(residues_of(integers, modulus), int(count), modulus, bits),
            modulus=modulus,
        )

    @property
    def said(self) -> Words:
        """What each curator says: the sum of the shares that it got, (n_curators, ...)."""
        return add_shares(self.shares, self.modulus, axis=0)

    @property
    def total(self) -> NDArray[np.int64]:
        """What everybody makes of that: the sum of all secrets."""
        return centred(add_shares(self.said, self.modulus), self.modulus)

    def seen_by(self, agents: Collection[int], curators: Collection[int] = ()) -> Words:
        """Shares that a coalition sees on their way, and what all curators say.

        Parameters
        ----------
        agents : collection of int
            Agents in the coalition: they know the shares of their own secrets.
        curators : collection of int, default=()
            Curators in it: they know the shares that they got.

        Returns
        -------
        ndarray of uint64 of shape (n_seen, ...)

        Raises
        ------
        ValueError
            If there is no such agent or curator.
        """
        n_agents, n_curators = self.shares.shape[:2]
        seen = np.zeros((n_agents, n_curators), dtype=bool)
        seen[_known("agents", agents, n_agents)] = True
        seen[:, _known("curators", curators, n_curators)] = True
        return np.concatenate([self.shares[seen], self.said])

    def learned_by(self, agents: Collection[int]) -> NDArray[np.int64]:
        """The sum of the secrets of everybody else, which agents can compute and no more.

        Parameters
        ----------
        agents : collection of int
            Agents that put together what they know.

        Returns
        -------
        ndarray of int64

        Raises
        ------
        ValueError
            If there is no such agent.
        """
        others = np.ones(len(self.shares), dtype=bool)
        others[_known("agents", agents, len(self.shares))] = False
        secrets = add_shares(self.shares, self.modulus, axis=1)
        return centred(add_shares(secrets[others], self.modulus), self.modulus)


def _known(name: str, members: Collection[int], count: int) -> NDArray[np.intp]:
    """Numbers of agents or curators, of whom there are so many."""
    for member in members:
        whole = isinstance(member, Integral) and not isinstance(member, bool)
        if not (whole and 0 <= int(member) < count):
            raise ValueError(f"Got {member!r} among {name}, expected ints in [0, {count}).")
    return np.asarray([int(member) for member in members], dtype=np.intp)


def _difference(left: Words, right: Words, modulus: int) -> Words:
    """``left - right`` modulo the modulus."""
    if WORD % modulus == 0:
        return np.asarray((left - right) & np.uint64(modulus - 1))
    m = np.uint64(modulus)
    return np.asarray((left + (m - right)) % m)
