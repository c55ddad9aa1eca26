"""Secret sharing: steps, the law of shared sums on a grid, what is planned of it, and the print."""

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from skdpadmm import DPDecentralizedClassifier, DPDecentralizedRegressor, DPFedRidge
from skdpadmm.algorithms import SecretSharingGradientDescent
from skdpadmm.algorithms._messages import CERTAIN
from skdpadmm.algorithms._shared_sums import FEWEST_CELLS, LONGEST_NOISE
from skdpadmm.losses import SquaredLoss
from skdpadmm.network import named_graph
from skdpadmm.noise import grid_cell
from skdpadmm.penalties import L1, SquaredL2
from skdpadmm.privacy import GaussianDP
from tests.algorithms import runs as agents
from tests.algorithms.runs import Watched, data_for, make_task
from tests.algorithms.runs import run_agents as run


@pytest.mark.parametrize(
    ("loss", "unit", "penalty", "momentum", "curators"),
    [
        ("squared", "record", L1(0.05), 0.7, None),
        ("logistic", "agent", SquaredL2(0.1), 0.5, 2),
        ("three", "record", SquaredL2(0.1), 0.0, 3),
    ],
)
def test_messages_are_gradients_at_the_public_model_and_steps_follow_their_sum(
    loss, unit, penalty, momentum, curators
):
    """Section 2.1 repaired: no gradient is taken at a model that only its agent knows."""
    algorithm = SecretSharingGradientDescent(
        step_size=0.6, clip_norm=0.4, momentum=momentum, tail_fraction=0.5, n_curators=curators
    )
    task = make_task(loss, unit=unit, penalty=penalty, max_iter=6)
    _, solution, gate = run(algorithm, task, epsilon=30.0, gate_class=Watched)
    w = np.zeros((4, task.facts.loss.n_outputs))
    previous, tail = w, 0.0 * w
    messages = [(value, out) for method, value, out, _ in gate.passed if method == "share"]
    for k, (value, out) in enumerate(messages):
        point = w + momentum * (w - previous)
        expected = [agents.summed_gradient(task, a, point, 0.8) / 0.8 for a in range(4)]
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-9)
        u = point - 0.6 * 0.8 / 25 * out
        previous, w = w, agents.shrunk(u, penalty, 0.6)
        tail = tail + u / 3 * (k >= 3)
    agents.assert_common(solution, agents.shrunk(tail, penalty, 0.6))
    assert len(messages) == 6


@pytest.mark.parametrize("estimator", [DPFedRidge, DPDecentralizedRegressor])
@pytest.mark.parametrize(("graph", "curators"), [("ring", None), ("barabasi-albert", 5)])
def test_messages_are_those_of_every_hop_of_every_share(estimator, graph, curators):
    X, y = data_for(SquaredLoss(), n=120)
    algorithm = SecretSharingGradientDescent(n_curators=curators)
    knobs = {"n_agents": 7, "max_iter": 4, "conditioning": "private", "epsilon": 20.0}
    model = estimator(algorithm=algorithm, random_state=0, **knobs)
    count, links = curators or 7, named_graph(graph, 7)
    # With a server: a share of everyone to each curator, their sum, and that to everyone.
    each = count * (7 + 1 + 7)
    if estimator is DPDecentralizedRegressor:
        model.set_params(topology=graph)
        pairs = itertools.product(range(7), range(count))
        each = sum(2 * nx.shortest_path_length(links, a, c) for a, c in pairs)
    model.fit(X, y)
    releases = model.plan(120, 3).releases
    messages = each * sum(r.times for r in releases)
    numbers = each * sum(r.times * math.prod(r.shape) for r in releases)
    assert (model.n_messages_, model.bytes_sent_) == (messages, 8 * numbers)


def test_preparations_pay_for_the_grid_that_their_shares_are_on():
    def first(algorithm):
        model = DPFedRidge(algorithm=algorithm, adversary="sums", delta=1e-8)
        return model.set_params(conditioning="private").plan(1_000_000, 100).releases[0]

    shared, plain = first("secret-sharing-gradient-descent"), first("federated-admm")
    ratio = shared.sensitivities[0] / plain.sensitivities[0]
    expected = (
        1 + grid_cell(1.0) * math.sqrt(shared.shape[0]) / shared.view("sums").guarantees[0].mu
    )
    assert ratio >= expected / CERTAIN
    assert ratio == pytest.approx(expected, 1e-4)


# Laws of integers: the probabilities of -reach, ..., reach.


def rounded_gaussian(std, cell, reach):
    """A Gaussian number rounded to multiples of a whole number of cells."""
    multiples = np.arange(0, reach // cell + 1) * cell
    # Differences in the lower tail, where they are exact.
    half = ndtr(-(multiples - cell / 2) / std) - ndtr(-(multiples + cell / 2) / std)
    law = np.zeros(2 * reach + 1)
    law[reach + multiples], law[reach - multiples] = half, half
    return law


def sum_law(stds, cells):
    reach, total = int(14 * math.hypot(*stds)) + 20, np.ones(1)
    for std, cell in zip(stds, cells, strict=True):
        total = np.convolve(total, rounded_gaussian(std, cell, reach))
    return total


# Standard deviations in units of the finest cell, and cells: equal ones, and nested grids.
CASES = [
    ([3.0, 3.0, 3.0], [1, 1, 1]), ([4.0, 11.0, 5.5], [1, 1, 1]),
    ([12.0, 12.0], [1, 4]), ([24.0, 40.0, 25.0], [1, 8, 4]),
]  # fmt: skip


def ratios(law, variance, shifts, n_epsilons=13):
    """Of deltas of a law and itself, shifted, over those of a Gaussian with that variance."""
    for shift in shifts:
        claimed, gap = GaussianDP(shift / math.sqrt(variance)), np.zeros(shift)
        pair = np.concatenate([law, gap]), np.concatenate([gap, law])
        for epsilon in np.linspace(0, claimed.mu**2 / 2 + 4 * claimed.mu, n_epsilons):
            if (delta := claimed.delta(float(epsilon))) > 1e-12:
                for one, other in (pair, pair[::-1]):
                    yield np.maximum(one - math.exp(epsilon) * other, 0).sum() / delta


@pytest.mark.parametrize(("stds", "cells"), CASES, ids=str)
def test_shifted_sums_are_no_further_apart_than_the_formula_says(stds, cells):
    left = sum(s**2 - 4 * c**2 for s, c in zip(stds, cells, strict=True))
    # Whoever is protected is on one of the grids.
    shifts = [cell * k for cell in set(cells) for k in (1, 2, 5, 12)]
    assert max(ratios(sum_law(stds, cells), left, shifts)) <= 1 + 1e-6


# What is planned.

SIZES = [3, 7, 20, 30, 40, 100]


def planned(n_samples=400, sizes=None, *, cls=DPDecentralizedRegressor, **knobs):
    """The plan of a network or a federation, and its shared sum."""
    own = {"n_curators": knobs.pop("n_curators", None)}
    settings = {"max_iter": 7, "conditioning": None, "scale": None, "delta": 1e-6}
    settings |= {"algorithm": SecretSharingGradientDescent(**own)} | knobs
    more = {"agent_sizes": sizes} if sizes else {}
    settings |= {} if sizes or "n_agents" in knobs else {"n_agents": 6}
    more |= {"n_classes": 3} if cls is DPDecentralizedClassifier else {}
    plan = cls(**settings).plan(sum(sizes) if sizes else n_samples, 3, **more)
    return plan, plan.releases[-1]


def formula(plan, release, agent, count):
    """The docstring's mu for an agent, from what is public and the least noise of others."""
    facts, kind = plan.facts, plan.facts.agents.kind
    share = np.asarray(release.agent_noise_std)[kind]
    cell = np.array([grid_cell(s) for s in share])
    certain = np.square(share) - 4 * np.square(cell)
    noise = certain[agent] + np.sort(np.delete(certain, agent))[: count - 1].sum()
    delta = facts.unit_limits[kind][agent] * facts.neighboring.sensitivity_factor
    delta = delta * facts.working_rounding + cell[agent] * math.sqrt(math.prod(release.shape))
    return math.sqrt(release.times) * delta / math.sqrt(noise)


NETWORKS = [
    {}, {"sizes": SIZES}, {"sizes": SIZES, "privacy_unit": "agent"}, {"neighboring": "zero_out"},
    {"epsilon": [0.5, 1.0, 2.0, 4.0, 1.0, 3.0]}, {"cls": DPDecentralizedClassifier},
]  # fmt: skip


@pytest.mark.parametrize("shape", NETWORKS, ids=str)
def test_figures_are_the_formula_for_every_observer_and_coalition(shape):
    cases = []
    for coalition, n_curators in itertools.product((1, 3, 5), (None, 2, 4)):
        alone = coalition >= (n_curators or 6)
        together = 1 if alone else 6 - coalition  # an eavesdropper is in league with the coalition
        knobs = {"coalition": coalition, "n_curators": n_curators, "adversary": "eavesdropper"}
        cases.append((knobs | shape, {"model": 6, "peer": together, "eavesdropper": together}))
    if "sizes" in shape:
        for n_honest, adversary in itertools.product((2, 6), ("server", "sums", "model")):
            knobs = {"cls": DPFedRidge, "adversary": adversary, "n_honest": n_honest} | shape
            cases.append((knobs, {"server": 1, "sums": n_honest, "model": 6}))
    for knobs, counts in cases:
        plan, release = planned(**knobs)
        for (observer, count), agent in itertools.product(counts.items(), range(6)):
            found = plan.guarantees(observer)[plan.facts.agents.kind[agent]].mu
            expected = formula(plan, release, agent, count)
            assert expected * (1 - 1e-12) <= found == pytest.approx(expected, rel=1e-9)


def test_the_noise_of_all_is_on_grids_that_fit_each_other():
    apart = {"coalition": 5, "n_curators": 5}
    release = planned(epsilon=[0.01, 100.0] + [1.0] * 4, **apart)[1]
    cells = np.array([grid_cell(s) for s in release.agent_noise_std])
    assert release.cell == cells.min()
    assert min(release.agent_noise_std) >= FEWEST_CELLS * cells.max()
    with pytest.raises(ValueError, match=r"^Got noise of agents from .* to .*, expected a ratio"):
        planned(epsilon=[1e-6, 1e3] + [1.0] * 4, **apart, max_iter=1)
    with pytest.raises(
        ValueError, match=r"^Got epsilon=1e-09 for 7 sums, expected a larger one, or fewer rounds"
    ):
        planned(epsilon=1e-9, delta=1e-9)
    with pytest.raises(ValueError, match=r"^Got messages of up to .* cells of the grid"):
        planned(n_samples=6 * 10**11, epsilon=1e8, max_iter=1)
    # No message of so many agents is too long for a float, but their sum is for the modulus.
    many = {"n_agents": 8192, "cls": DPFedRidge, "adversary": "model", "delta": 1e-20}
    many |= {"n_samples": 8192 * 10**5, "max_iter": 1}
    planned(epsilon=1e4, **many)
    with pytest.raises(ValueError, match=r"^Got messages of up to 6.87e\+15 cells .* in all: the"):
        planned(epsilon=1e6, **many)
    # The error of the theorem on rounded sums is beside what no float can tell, in its logarithm;
    # so is the chance of noise that a modulus does not hold.
    assert math.log(2.0) - (math.pi * FEWEST_CELLS) ** 2 < -10_000
    assert norm.logsf(LONGEST_NOISE) < -800
    # Four squared cells are taken off for every agent.
    for scale in (1.0, 1.999, 2.0, 1e-9, 3e11):
        assert (CERTAIN * scale) ** 2 <= scale**2 - 4 * grid_cell(scale) ** 2 * (1 - 1e-12)
