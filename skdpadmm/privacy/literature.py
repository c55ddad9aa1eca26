"""Printed formulas that fail for the algorithm they are attached to.

They are here to compare with, each with the reason. No report ever uses one.
"""

from __future__ import annotations

__all__ = ["consensus_admm_printed_rdp"]


def consensus_admm_printed_rdp(
    alpha: float,
    n_iter: int,
    lipschitz: float,
    step_size: float,
    noise_std: float,
    n_samples: int,
) -> float:
    r"""Return the divergence printed for centralised consensus ADMM. It is too small.

    .. math:: 8 \alpha K L^2 \gamma^2 / (\sigma^2 n^2)

    Cyffers, Bellet and Basu, ICML 2023, Theorem 2. It fails for their Algorithm 2: every block is
    noised by itself, so in the mean over n blocks the noise averages as well as the sensitivity.
    On linear losses the exact divergence of the released mean is
    :math:`8 \alpha K L^2 \gamma^2 / (\sigma^2 n)`, which is n times what is printed.

    Parameters
    ----------
    alpha : float
        Order of the divergence.
    n_iter : int
        Number of iterations K.
    lipschitz : float
        Lipschitz constant L of each record's loss.
    step_size : float
        Step size gamma of the proximal operators.
    noise_std : float
        Standard deviation sigma of the noise on a block.
    n_samples : int
        Number of records n.

    Returns
    -------
    float
        The printed value, not a bound.

    Examples
    --------
    >>> from skdpadmm.privacy.literature import consensus_admm_printed_rdp
    >>> consensus_admm_printed_rdp(2.0, 10, 1.0, 1.0, 1.0, 100)
    0.016
    """
    return 8 * alpha * n_iter * lipschitz**2 * step_size**2 / (noise_std**2 * n_samples**2)
