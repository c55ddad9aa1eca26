"""Noisy fixed-point iterations on blocks: the form that the private algorithms here share.

Source: Cyffers, Bellet & Basu, "From Noisy Fixed-Point Iterations to Private ADMM for Centralized
and Federated Learning" (ICML 2023), Algorithm 1. Gradient descent is the case of one block
(Proposition 1), coordinate descent that of one block for each coordinate (Proposition 2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Schedule = Literal["all", "permutation", "random"]


def block_schedule(
    schedule: Schedule, *, n_blocks: int, n_passes: int, seed: int = 0
) -> NDArray[np.intp]:
    """Which blocks each step updates; public, because it depends on nothing but its arguments.

    Parameters
    ----------
    schedule : {"all", "permutation", "random"}
        "all" blocks at once; one block after the other, in a random order that each pass draws
        anew; or one random block in each step.
    n_blocks : int
    n_passes : int
        Steps, where all blocks move at once; otherwise `n_blocks` steps each.
    seed : int, default=0
        Of a generator that only draws this order.

    Returns
    -------
    ndarray of shape (n_steps, n_updated)
        Indices of blocks.

    Raises
    ------
    ValueError
        Where the schedule is not known.

    Examples
    --------
    >>> from skdpadmm.algorithms._fixed_point import block_schedule
    >>> sorted(block_schedule("permutation", n_blocks=3, n_passes=1).ravel().tolist())
    [0, 1, 2]
    """
    rng = np.random.default_rng(seed)
    if schedule == "all":
        return np.tile(np.arange(n_blocks), (n_passes, 1))
    if schedule == "permutation":
        orders = [rng.permutation(n_blocks) for _ in range(n_passes)]
        return np.concatenate(orders)[:, None] if orders else np.empty((0, 1), dtype=np.intp)
    if schedule == "random":
        return rng.integers(n_blocks, size=(n_passes * n_blocks, 1))
    raise ValueError(
        f"Got schedule={schedule!r}, expected 'all', 'permutation' or 'random': which blocks move"
        " in each step."
    )


def noisy_fixed_point(
    operators: Sequence[Callable[[NDArray[np.float64]], NDArray[np.float64]]],
    blocks: Sequence[NDArray[np.intp]],
    start: NDArray[np.float64],
    steps: NDArray[np.intp],
    *,
    relaxation: float | NDArray[np.float64],
    noise: NDArray[np.float64],
) -> NDArray[np.float64]:
    r"""Iterate :math:`u_b \leftarrow u_b + \lambda_b (R_b(u) + \eta_b - u_b)` on blocks of u.

    All blocks of a step are evaluated at the same u. Noise is multiplied by the relaxation.

    Parameters
    ----------
    operators : sequence of callables
        ``R_b`` for each block: maps u to a vector of the block's length. Errors of evaluation
        (``e_b`` in the source), such as those of a sampled gradient, belong in here.
    blocks : sequence of ndarrays of int
        Entries of u in each block.
    start : ndarray of shape (dim,)
        Public.
    steps : ndarray of shape (n_steps, n_updated)
        Blocks that each step updates, such as from `block_schedule`.
    relaxation : float or ndarray of shape (n_blocks,)
        In (0, 1].
    noise : ndarray of shape (n_steps, dim)
        What is added to the operators; only entries of updated blocks are used.

    Returns
    -------
    ndarray of shape (n_steps + 1, dim)
        The path, its start included.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpadmm.algorithms._fixed_point import noisy_fixed_point
    >>> halve = [lambda u: u / 2]
    >>> noisy_fixed_point(
    ...     halve, [np.array([0])], np.ones(1), np.zeros((2, 1), int),
    ...     relaxation=1.0, noise=np.zeros((2, 1)),
    ... ).ravel().tolist()
    [1.0, 0.5, 0.25]
    """
    factors = np.broadcast_to(np.asarray(relaxation, dtype=np.float64), (len(blocks),))
    path = np.empty((len(steps) + 1, len(start)))
    path[0] = start
    for k, updated in enumerate(steps):
        path[k + 1] = path[k]
        for b in updated:
            entries = blocks[b]
            target = operators[b](path[k]) + noise[k, entries]
            path[k + 1, entries] += factors[b] * (target - path[k, entries])
    return path
