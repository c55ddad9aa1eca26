"""ADMM by secret sharing: messages, what is planned of them, and absences."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from skdpadmm import DPDecentralizedRegressor, DPFedRidge
from skdpadmm.algorithms import FederatedADMM, SecretSharingGradientDescent
from skdpadmm.algorithms import _shared_sums as shared
from skdpadmm.algorithms._messages import EVERYONE, draw_schedule
from skdpadmm.noise import grid_cell, noise_source
from skdpadmm.penalties import L1
from skdpadmm.protocol import Gate, PlanViolation
from skdpadmm.secret_sharing import PRIME
from tests.algorithms import runs as agents
from tests.algorithms.runs import Watched, data_for, make_task
from tests.algorithms.runs import run_agents as run

PENALTY = L1(0.02)
GAMMA, CLIP = 1.3, 0.8  # a clip bound of 0.4 in units of a typical row, whose norm is 2


def naive_messages(task, step, message, lam, path):
    """What agents send, by a loop over blocks: the models of the rounds are given."""
    facts, of_agents = task.facts, task.facts.unit == "agent"
    n, n_agents = facts.n_samples, facts.agents.n_agents
    shape = (facts.n_parameters, facts.loss.n_outputs)
    center, sent = np.zeros(shape), []
    states = [np.zeros((1 if of_agents else len(task.of(a)[1]), *shape)) for a in range(n_agents)]
    for z in path:
        total = np.zeros((n_agents, *shape))
        for a in range(n_agents):
            A, y = task.of(a)
            blocks = (
                [(A, y)] if of_agents else [(A[i : i + 1], y[i : i + 1]) for i in range(len(y))]
            )
            limit = min(len(y), 2 * n / n_agents) / len(y) if of_agents else 1.0
            for b, (rows, target) in enumerate(blocks):
                old = states[a][b]
                v = 2 * z - (center - old) if step == "exact" else z
                if step == "exact":
                    d = v - agents.exact_prox(facts.loss, rows, target, GAMMA, v)
                else:
                    d = GAMMA * rows.T @ agents.slopes(facts.loss, rows @ z, target) / len(target)
                bound = GAMMA * CLIP * limit
                if message == "state":
                    sends = states[a][b] = (1 - 2 * lam) * old + 2 * lam * agents.clipped(d, bound)
                else:
                    d = agents.clipped(d, bound)
                    sends = 2 * lam * agents.clipped(d - old, bound)
                    states[a][b] = old + sends
                total[a] += sends * len(target) / n / (GAMMA * CLIP)
        center = (1 - 2 * lam) * center + 2 * lam * z
        sent.append(total)
    return sent


@pytest.mark.parametrize(
    ("loss", "unit", "step", "message", "lam"),
    [
        ("squared", "record", "exact", "state", 0.3),
        ("logistic", "record", "linearized", "increment", 0.4),
        ("three", "record", "linearized", "state", 0.5),
        ("squared", "agent", "exact", "state", 0.8),
        ("three", "agent", "linearized", "state", 0.3),
    ],
)
@pytest.mark.parametrize("curators", [{}, {"n_curators": 3, "threshold": 2}])
def test_every_agent_sends_the_sum_of_its_own_states(
    loss, unit, step, message, lam, curators, monkeypatch
):
    monkeypatch.setattr("skdpadmm.algorithms._agent_blocks.WARM_STEPS", 10)
    task = make_task(loss, unit=unit, penalty=PENALTY, max_iter=5)
    algorithm = FederatedADMM(
        sharing=True, step_size=GAMMA, clip_norm=CLIP / 2, relaxation=lam, local_step=step,
        message=message, **curators,
    )  # fmt: skip
    plan, solution, gate = run(algorithm, task, epsilon=30.0, gate_class=Watched)
    passed = [(value, out) for method, value, out, _ in gate.passed if method == "share"]
    shape = plan.releases[-1].shape
    z, c, mean = (np.zeros(shape) for _ in range(3))
    path, means = [], []
    for _, out in passed:
        path.append(z)
        before, c = c, (1 - 2 * lam) * c + 2 * lam * z
        public = c if message == "state" else mean + c - before
        mean = public - GAMMA * CLIP * out
        means.append(mean)
        z = agents.shrunk(mean, PENALTY, GAMMA)
    sent = naive_messages(task, step, message, lam, path)
    for (value, _), expected in zip(passed, sent, strict=True):
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-9)
    agents.assert_common(solution, agents.shrunk(np.mean(means[2:], axis=0), PENALTY, GAMMA))


# What is planned.

SIZES = [3, 7, 20, 30, 40, 100]


def planned(cls=DPFedRidge, sizes=SIZES, *, algorithm=FederatedADMM, **knobs):
    own = {"sharing": True} if algorithm is FederatedADMM else {}
    names = ("n_curators", "threshold", "relaxation", "message")
    own |= {name: knobs.pop(name) for name in names if name in knobs}
    settings = {"max_iter": 7, "conditioning": None, "scale": None, "delta": 1e-6}
    model = cls(algorithm=algorithm(**own), **settings | knobs)
    plan = model.plan(sum(sizes), 3, agent_sizes=sizes)
    return plan, plan.releases[-1]


def formula(plan, release, agent, count, lam):
    """Exact composition of rounds whose shift is that of a state and of the grid."""
    facts, kind = plan.facts, plan.facts.agents.kind
    std = np.asarray(release.agent_noise_std)[kind]
    cell = np.array([grid_cell(s) for s in std])
    certain = np.square(std) - 4 * np.square(cell)
    noise = certain[agent] + np.sort(np.delete(certain, agent))[: count - 1].sum()
    limit = facts.unit_limits[kind][agent] * facts.neighboring.sensitivity_factor
    grid, total, state = cell[agent] * math.sqrt(math.prod(release.shape)), 0.0, 0.0
    for _ in range(release.times):
        # |u - u'| <= |1 - 2 lam| |u - u'| + 2 lam * limit C, in units of C / n.
        state = abs(1 - 2 * lam) * state + 2 * lam * limit
        total += (state * facts.working_rounding / facts.n_samples + grid) ** 2
    return math.sqrt(total / noise)


FEDERATIONS = [
    {}, {"privacy_unit": "agent"}, {"neighboring": "zero_out", "relaxation": 0.2},
    {"relaxation": 0.8, "n_curators": 4, "threshold": 3}, {"relaxation": 0.05},
]  # fmt: skip


@pytest.mark.parametrize("shape", FEDERATIONS, ids=str)
def test_figures_compose_the_sensitivities_of_states_and_the_grid_exactly(shape):
    lam = shape.get("relaxation", 0.5)
    for n_honest, adversary in itertools.product((2, 6), ("server", "sums", "model")):
        plan, release = planned(n_honest=n_honest, adversary=adversary, **shape)
        for observer, count in {"server": 1, "sums": n_honest, "model": 6}.items():
            for agent in range(6):
                claimed = plan.guarantees(observer)[plan.facts.agents.kind[agent]].mu
                exact = formula(plan, release, agent, count, lam)
                assert exact * (1 - 1e-12) <= claimed == pytest.approx(exact, rel=1e-6)
        # The triangle inequality that noise is chosen by costs next to nothing.
        assert plan.guarantee(adversary).epsilon(1e-6) == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize(("curators", "least"), [((4, 3), 3), ((4, None), 4), ((6, 2), 2)])
def test_a_coalition_of_as_many_curators_as_are_needed_sees_every_message(curators, least):
    knobs = {"n_curators": curators[0], "threshold": curators[1], "relaxation": 0.3}
    for algorithm, coalition in itertools.product(
        (FederatedADMM, SecretSharingGradientDescent), range(1, 6)
    ):
        own = knobs if algorithm is FederatedADMM else {**knobs}
        own = {k: v for k, v in own.items() if algorithm is FederatedADMM or k != "relaxation"}
        plan, release = planned(
            DPDecentralizedRegressor, algorithm=algorithm, coalition=coalition, **own
        )
        alone = coalition >= least
        assert plan.facts.agents.sees_each_message("peer") == alone
        if algorithm is FederatedADMM:
            expected = formula(plan, release, 0, 1 if alone else 6 - coalition, 0.3)
            assert plan.guarantees("peer")[0].mu == pytest.approx(expected, rel=1e-6)


@pytest.mark.usefixtures("fixed_entropy")
@pytest.mark.parametrize("algorithm", [FederatedADMM, SecretSharingGradientDescent])
def test_noise_is_planned_for_the_fewest_senders_and_a_smaller_sum_is_refused(algorithm):
    more = {"n_curators": 5, "threshold": 3, "dropout": 0.2, "adversary": "sums", "n_honest": 5}
    plan, release = planned(algorithm=algorithm, **more)
    fewest = release.fewest
    assert 1 < fewest < 6
    assert release.modulus == PRIME
    left = max(1, fewest - 1)
    if algorithm is FederatedADMM:
        expected = formula(plan, release, 0, left, 0.5)
        assert plan.guarantee("sums").mu == pytest.approx(expected, rel=1e-6)
    value = np.random.default_rng(0).normal(size=(6, *release.shape)) * release.noise_std * 1e-3
    gate, senders = Gate(plan, noise_source(None, plan.digest())), np.arange(6) < fewest
    sums = np.array([gate.share(release.name, value, senders) for _ in range(6)])
    # Only what senders sent is in a sum, with only their noise.
    noise = (sums - value[senders].sum(axis=0)).ravel()
    of_one = np.asarray(release.agent_noise_std)[plan.facts.agents.kind]
    assert noise.std() == pytest.approx(np.linalg.norm(of_one[senders]), rel=0.6)
    with pytest.raises(PlanViolation, match=f"expected at least {fewest}: their noise is too"):
        gate.share(release.name, value, np.arange(6) < fewest - 1)


@pytest.mark.parametrize("kind", ["gradient", "state", "increment"])
def test_rounds_without_some_agents_are_those_of_a_loop_over_who_is_there(kind):
    """Sums have the messages of senders, divided by how many there are on average."""
    X, y = data_for(agents.LOSSES["squared"], n=120)
    X, y = X, y / 3
    own = {"n_curators": 4, "threshold": 2, "clip_norm": 0.5}
    own |= {} if kind == "gradient" else {"sharing": True, "message": kind}
    algorithm = (SecretSharingGradientDescent if kind == "gradient" else FederatedADMM)(**own)
    model = DPFedRidge(
        algorithm=algorithm, n_agents=8, max_iter=30, dropout=0.4, epsilon=1e6, adversary="model",
        feature_bounds=(-1, 1), target_bounds=(-1, 1), conditioning=None, random_state=0, alpha=0.1,
    )  # fmt: skip
    model.fit(X, y)
    plan = model.plan(120, 3)
    gate = Gate(plan, noise_source(0, plan.digest()))
    rounds = replace(EVERYONE, n_rounds=30, fewest=plan.releases[-1].fewest)
    sends = draw_schedule(rounds, plan.facts.agents, gate).sends
    assert 0 < sends.any(axis=1).sum() <= 30
    n_rounds = int(sends.any(axis=1).sum())
    # A share of each sender to each curator, and their sums to each other and to everyone.
    expected = 4 * (int(sends.sum()) + n_rounds * 9)
    assert (model.n_iter_, model.n_rounds_, model.n_messages_) == (n_rounds, n_rounds, expected)
    whole = DPFedRidge(**{**model.get_params(deep=False), "dropout": 0.0}).fit(X, y)
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=0.15)


def test_what_sharing_does_not_serve_is_refused():
    fed = {"n_agents": 6, "adversary": "sums"}
    cases = [
        ({"participation": 0.5}, {"threshold": 3}, "sit rounds out or drop out"),
        ({"dropout": 0.1}, {}, "sit rounds out or drop out"),
        ({}, {"threshold": 7}, "Got threshold=7, expected None, or an int from 2 to n_curators=6"),
        ({}, {"threshold": 4, "n_curators": 3}, "an int from 2 to n_curators=3"),
        ({}, {"threshold": 1}, "Got threshold=1, expected None or an int"),
        ({"n_agents": 2}, {}, "Got 2 agents .* at least 3 agents"),
        ({}, {"sharing": False, "n_curators": 3}, "Got curators with sharing=False, expected"),
        ({}, {"sharing": False, "threshold": 3}, "Got curators with sharing=False, expected"),
    ]
    for params, knobs, message in cases:
        model = DPFedRidge(algorithm=FederatedADMM(**{"sharing": True, **knobs}), **fed | params)
        with pytest.raises(ValueError, match=message):
            model.plan(600, 3)
    graph = DPDecentralizedRegressor(algorithm=FederatedADMM(), n_agents=6)
    with pytest.raises(ValueError, match="Got sharing=False on a graph, expected sharing=True"):
        graph.plan(600, 3)
    facts = planned()[0].facts
    with pytest.raises(ValueError, match=r"^Got facts of 6 curators, expected 3"):
        FederatedADMM(sharing=True, n_curators=3).plan(facts, agents.BUDGET)
    # A prime holds less than a word.
    assert shared.WORD > 7 * PRIME
    many = {"sizes": [10**5] * 8192, "max_iter": 1, "adversary": "model", "delta": 1e-20}
    many |= {"epsilon": 1e4, "algorithm": SecretSharingGradientDescent, "n_curators": 3}
    planned(**many)
    with pytest.raises(ValueError, match=r"and 1.15e\+18 in all: the noise is too small"):
        planned(**many, threshold=2)
