"""Consensus and federated ADMM under known noise: their rounds, and what they must not do.

A curator is one agent, so that one naive loop serves both.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import skdpadmm.algorithms._agent_blocks as record_blocks
import skdpadmm.algorithms._consensus_admm as federated
from skdpadmm.algorithms import ConsensusADMM, FederatedADMM
from skdpadmm.algorithms._messages import Schedule
from skdpadmm.engine import Engine
from skdpadmm.losses import SquaredLoss, clip_vectors
from skdpadmm.penalties import L1, ElasticNet
from skdpadmm.protocol import Problem
from skdpadmm.records import Rows
from tests.algorithms import runs as direct
from tests.algorithms.runs import close, coordinates_of, data_for, facts_for, run

pytestmark = pytest.mark.usefixtures("keep_noise")

PENALTY = ElasticNet(0.03, 0.1)
OWNER = np.random.default_rng(9).permutation(np.repeat([0, 1, 2, 3], [16, 4, 3, 2]))
SOME = np.random.default_rng(5).random((7, 4)) < 0.6
SOME[3] = False  # nobody


def naive_path(
    X, y, owner, takes_part, *, loss, gamma, lam, clip_norm, noise, unit="record", message="state",
    exact=True, penalty=PENALTY,
):  # fmt: skip
    """The mean of states after each round, one state for each block; how often a clip was met."""
    A, n = direct.augmented(X), len(X)
    n_agents, shape = takes_part.shape[1], (X.shape[1] + 1, loss.n_outputs)
    blocks, owners, limits = [[i] for i in range(n)], owner, np.ones(n)
    if unit == "agent":
        blocks = [np.flatnonzero(owner == a) for a in range(n_agents)]
        owners, sizes = np.arange(n_agents), np.array([len(block) for block in blocks])
        limits = np.minimum(sizes, 2 * n / n_agents) / sizes
    centers, displacements = np.zeros((2, len(blocks), *shape))
    center, z, mean = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    path, n_clipped, arriving = [], 0, 1.0 if takes_part.all() else 0.5
    for k, active in enumerate(takes_part):
        if not active.any():
            path.append(mean)
            continue
        total = np.zeros(shape)
        for b, rows in enumerate(blocks):
            if not active[owners[b]]:
                continue
            u, bound = centers[b] - displacements[b], gamma * clip_norm * limits[b]
            v, old, share = 2 * z - u, displacements[b].copy(), len(rows) / n
            if exact:
                d = v - direct.exact_prox(loss, A[rows], y[rows], gamma, v)
            else:
                d = gamma * A[rows].T @ direct.slopes(loss, A[rows] @ z, y[rows]) / len(rows)
            if message == "increment" and unit == "agent":
                n_clipped += np.linalg.norm(z - u - d) > bound
                change = 2 * lam * direct.clipped(z - u - d, bound)
                centers[b] += change
                total -= share * change
                continue
            n_clipped += np.linalg.norm(d) > bound
            d, moved = direct.clipped(d, bound), 2 * lam * (z - centers[b])
            centers[b] += moved
            if message == "state":
                displacements[b] = (1 - 2 * lam) * old + 2 * lam * d
                total += share * displacements[b]
            else:
                change = 2 * lam * direct.clipped(d - old, bound)
                displacements[b] = old + change
                total -= share * (moved - change)
        drawn = (
            gamma * clip_norm * noise[k] * (-1 if (unit, message) == ("agent", "increment") else 1)
        )
        if message == "state":
            center = (1 - 2 * lam) * center + 2 * lam * z
            mean = center - (total + drawn) / arriving
        else:
            mean = mean - total - drawn
        path.append(mean)
        z = direct.shrunk(mean, penalty, gamma, X.shape[1])
    return np.array(path), n_clipped


COVERED = [  # loss, unit (None: a curator), message, exact steps, whether everyone takes part
    ("squared", None, "state", True, True), ("squared", None, "state", False, True),
    ("logistic", None, "state", True, True), ("three", None, "state", True, True),
    ("three", None, "state", False, True), ("three", "record", "state", True, True),
    ("squared", "record", "state", True, False), ("squared", "record", "increment", False, True),
    ("squared", "agent", "state", False, True), ("squared", "agent", "increment", True, False),
    ("logistic", "record", "state", False, False), ("logistic", "agent", "increment", False, False),
    ("logistic", "record", "increment", True, False), ("logistic", "agent", "state", True, True),
    ("three", "record", "increment", False, False), ("three", "agent", "state", True, False),
    ("three", "agent", "increment", False, True),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "unit", "message", "exact", "everyone"), COVERED)
def test_a_round_has_one_state_for_each_block(loss, unit, message, exact, everyone, monkeypatch):
    loss, gamma, owner = direct.LOSSES[loss], 1.7, OWNER if unit else np.zeros(25, dtype=int)
    (X, y), rng = data_for(loss, n=25), np.random.default_rng(1)
    # Noise that is large enough for a record's slope to change by more than its bound.
    jumps = (unit, message) == ("record", "increment")
    noise = (1.5 if jumps else 0.05) * rng.normal(size=(7, 4, loss.n_outputs))
    takes_part = np.ones((7, 4 if unit else 1), dtype=bool) if everyone else SOME
    if not everyone:
        schedule = Schedule(takes_part=takes_part, sends=takes_part)
        monkeypatch.setattr(federated, "draw_schedule", lambda *arguments: schedule)
    lam = (0.3, 0.8)[unit is None and exact] if everyone or message == "increment" else 0.5
    clip_norm = 0.5 if exact else 0.7
    if loss is direct.LOSSES["logistic"]:
        clip_norm = 0.3 if unit else 0.45
    path, n_clipped = naive_path(
        X, y, owner, takes_part, loss=loss, gamma=gamma, lam=lam, clip_norm=clip_norm, noise=noise,
        unit=unit or "record", message=message, exact=exact,
    )  # fmt: skip
    assert 0 < n_clipped < takes_part.sum() * (1 if unit == "agent" else 25)
    knobs = {"step_size": gamma, "clip_norm": clip_norm / 2, "relaxation": lam}
    step = "exact" if exact else "linearized"
    around = {"loss": loss, "penalty": PENALTY, "max_iter": 7, "noise": noise}
    if unit is None:
        algorithm = ConsensusADMM(record_step=step, **knobs)
    else:
        algorithm = FederatedADMM(local_step=step, message=message, **knobs)
        around |= {"owner": OWNER, "unit": unit, "participation": 1.0 if everyone else 0.5}
    # Of the tail those rounds count that took place.
    tail = path[[k for k in (3, 4, 5, 6) if takes_part[k].any()]].mean(axis=0)
    expected = direct.shrunk(tail, PENALTY, gamma, 3)
    close(run(algorithm, X, y, **around).solution.parameters, expected, 1e-5)
    monkeypatch.setattr(record_blocks, "WARM_STEPS", 10)
    solution = run(algorithm, X, y, **around).solution
    close(solution.parameters, expected, 1e-9)
    assert solution.n_iter == takes_part.any(axis=1).sum()


@pytest.mark.parametrize(
    ("message", "everyone"), [("state", True), ("state", False), ("increment", False)]
)
@pytest.mark.parametrize("step", ["exact", "linearized"])
@pytest.mark.parametrize("loss", direct.LOSSES)
def test_agents_with_one_row_each_take_the_steps_of_a_loop_over_agents(
    loss, step, message, everyone, monkeypatch
):
    (X, y), rng = data_for(direct.LOSSES[loss], n=25), np.random.default_rng(2)
    knobs = {"step_size": 1.7, "clip_norm": 0.2, "local_step": step, "message": message}
    around = {
        "loss": direct.LOSSES[loss], "penalty": PENALTY, "max_iter": 7, "unit": "agent",
        "owner": np.arange(25)[::-1], "participation": 1.0 if everyone else 0.5,
        "noise": 0.05 * rng.normal(size=(7, 4, direct.LOSSES[loss].n_outputs)),
    }  # fmt: skip
    solved, made = record_blocks.LocalProblem.displacement, record_blocks.agent_blocks
    with monkeypatch.context() as patch:
        patch.setattr(record_blocks.LocalProblem, "displacement", None)  # no loop
        at_once = run(FederatedADMM(**knobs), X, y, **around).solution.parameters

    def in_a_loop(*arguments, **options):
        blocks = made(*arguments, **options)
        return [replace(block, has_single_rows=False) for block in blocks]

    calls = []
    monkeypatch.setattr(record_blocks, "agent_blocks", in_a_loop)
    monkeypatch.setattr(
        record_blocks.LocalProblem, "displacement", lambda *a: calls.append(1) or solved(*a)
    )
    close(at_once, run(FederatedADMM(**knobs), X, y, **around).solution.parameters, 1e-9)
    assert bool(calls) == (step == "exact")


def test_the_algorithm_as_it_was_printed_goes_to_zero_and_this_one_to_the_lasso():
    loss, penalty, gamma, owner = direct.LOSSES["squared"], L1(0.05), 3.0, np.arange(60) % 6
    X, y = data_for(loss)
    A, u, z = direct.augmented(X), np.zeros((6, 4, 1)), np.zeros((4, 1))
    for _ in range(200):
        change = np.zeros((4, 1))
        for a in range(6):
            mine = owner == a
            hessian = A[mine].T @ A[mine] / 10 + np.eye(4) / gamma
            linear = A[mine].T @ y[mine, None] / 10 + (2 * z - u[a]) / gamma
            x = np.linalg.solve(hessian, linear)
            u[a] += x - z
            change += (x - z) / 6
        # As printed, changes of states are added to the point after the proximal step.
        z = direct.shrunk(z + change, penalty, gamma, 3)
    best = direct.optimum(loss, penalty, X, y)
    assert np.abs(best[:-1]).max() > 0.1
    close(z[:-1], 0.0, 1e-6)
    algorithm = FederatedADMM(step_size=gamma, message="increment", clip_norm=1e8)
    around = {"owner": owner, "unit": "agent", "max_iter": 300}
    close(direct.found(run(algorithm, X, y, loss=loss, penalty=penalty, **around)), best, 1e-6)


@pytest.mark.parametrize("lam", [8e-17, 1e-12, 1e-6, 0.01, 0.3, 0.5, 0.7, 0.99, 1 - 1e-9])
def test_sensitivities_are_those_of_the_exact_recursion_of_a_state(lam):
    # |u_k - u_k'| <= |1 - 2 lam| |u - u'| + 2 lam * 2 C, in units of C / n.
    for relation, factor in (("replace_one", 2), ("zero_out", 1)):
        facts = facts_for(coordinates_of(3), 60, SquaredLoss(), neighboring=relation)
        plan = ConsensusADMM(relaxation=lam).plan(facts, direct.BUDGET)
        exact, worst = Fraction(lam), Fraction(0)
        for declared in plan.releases[0].sensitivities[:20]:
            worst = abs(1 - 2 * exact) * worst + 2 * factor * exact
            assert float(worst) * (1 - 1e-12) <= 60 * declared <= float(worst) * (1 + 1e-6)


def test_vectors_are_clipped_each_by_itself_whatever_their_size():
    vectors = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [1e200, 0.0], [np.nan, 1], [1, np.inf]])
    expected = [[0.6, 0.8], [0.3, 0.4], [0, 0], [2, 0], [0, 0], [0, 0]]
    bounds = np.array([1.0, 1.0, 1.0, 2.0, 1.0, 1.0])
    np.testing.assert_allclose(clip_vectors(vectors[:, :, None], bounds)[:, :, 0], expected)
    # What is too long for its norm to be a float becomes zero as well.
    for size, entry in ((5e-324, 5e-324), (1e-160, 1e-160), (1e160, 0.5 / 15**0.5), (1.7e308, 0)):
        with np.errstate(all="ignore"):  # as in every part that an engine calls
            short = clip_vectors(np.full((1, 5, 3), size), np.array([0.5]))
        np.testing.assert_allclose(short, entry, rtol=1e-12, atol=1e-323)


@pytest.mark.parametrize("per_person", [1, 2])
def test_states_of_weighted_records_and_of_persons_are_those_of_a_loop(per_person):
    (X, y), rng = data_for(SquaredLoss(), n=6), np.random.default_rng(1)
    weights = np.tile([1.5, 0.5], 3) if per_person == 2 else rng.uniform(0, 1, 6)
    rows, lam, clip_norm = Rows(X, coordinates_of(3), per_unit=per_person), 0.8, 0.5
    update = record_blocks.BlockUpdate(
        loss=SquaredLoss(), step_size=1.0, relaxation=lam, exact=False, increments=False
    )
    problem = Problem(rows=rows, target=y, engine=Engine(), weights=weights, per_person=per_person)
    (records,) = record_blocks.record_blocks(problem, update, clip_norm=clip_norm, everyone=True)
    A, states = np.column_stack([X, np.ones(6)]), np.zeros((6 // per_person, 4))
    for z in rng.normal(size=(2, 4, 1)):
        found = rows.collect(records.advance(z, z, None))
        gradients = weights[:, None] * SquaredLoss().derivative(A @ z[:, 0], y)[:, None] * A
        longest = clip_norm * per_person
        sums = gradients.reshape(-1, per_person, 4).sum(axis=1)
        clipped = [direct.clipped(each, longest) for each in sums]
        states = (1 - 2 * lam) * states + 2 * lam * np.array(clipped)
        close(np.ravel(found), states.sum(axis=0), 1e-12)
