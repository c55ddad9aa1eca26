"""The model that an agent fits at home: its own rows without noise, and its neighbours' models."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm.algorithms._agent_turns import neighbor_means
from skdpadmm.algorithms._joint_newton import JointObjective, joint_newton
from skdpadmm.algorithms._wake_ups import penalty_curvature
from skdpadmm.engine import one_blas_thread
from skdpadmm.network import Ownership
from skdpadmm.protocol import Facts, neighborhood_of
from skdpadmm.records import Rows

TOLERANCE, MOST_STEPS = 1e-10, 100


def refit_at_home(
    facts: Facts,
    rows: Rows,
    target: NDArray[Any],
    *,
    agent: int,
    models: NDArray[np.float64],
) -> NDArray[np.float64]:
    r"""Minimise the joint objective over the model of one agent, with its own rows.

    .. math:: \arg\min_\theta \frac12 \Big\|\theta - \sum_j \frac{W_{ij}}{D_i} \Theta_j\Big\|^2
              + \mu c_i L_i(\theta)

    Nothing is clipped and no noise is added: the answer is for this agent alone. It must not be
    stored or sent, and then it costs nothing: what others see does not depend on it. An agent
    without neighbours minimises its loss.

    Parameters
    ----------
    facts : Facts
        Of personalised models; the loss and the penalty are in units of the target of `rows`.
    rows : Rows
        Of this agent alone, in the coordinates of the models. None of them: the answer is the mean
        of the neighbours.
    target : ndarray of shape (n_own,)
        As the loss expects it, in the same coordinates.
    agent : int
        Its position.
    models : ndarray of shape (n_agents, n_parameters, n_outputs)
        Public models of all agents.

    Returns
    -------
    ndarray of shape (n_parameters, n_outputs)
    """
    agents = neighborhood_of(facts)
    center = neighbor_means(agents.similarity, models, np.array([agent]))
    if rows.n_samples == 0:
        return np.asarray(center[0])
    is_alone = agents.n_agents == 1
    one = 0.0 if is_alone else 1.0
    weight = 1.0 if is_alone else agents.trade_off * agents.confidence[agent]
    objective = JointObjective(
        rows=rows,
        target=target,
        ownership=Ownership(
            labels=np.zeros(1, dtype=np.intp), index=np.zeros(rows.n_samples, dtype=np.intp)
        ),
        loss=facts.loss,
        coupling=lambda model: one * model,
        coupling_diagonal=np.array([one]),
        linear=one * center,
        weights=np.array([weight]),
        curvature=penalty_curvature(facts.penalty, rows.coordinates),
    )
    # Threads cost more than they save on the rows of one agent.
    with one_blas_thread():
        found, _, _ = joint_newton(
            objective,
            center,
            tolerance=TOLERANCE,
            max_iter=MOST_STEPS,
            progress=lambda done: None,
        )
    return np.asarray(found[0])
