"""Theorems about sums by secret sharing, and what the printed protocol leaks."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import skdpadmm.protocol._gate as gate_module
from skdpadmm import DPDecentralizedRegressor
from skdpadmm.algorithms import SecretSharingGradientDescent
from skdpadmm.secret_sharing import centred, residues_of, share_and_sum
from tests.contract.harness import moves, record, replay
from tests.contract.registry import AGENTS, ROWS

N_AGENTS = max(AGENTS) + 1


def row_of(**params):
    (row,) = (row for row in ROWS if row.id == "sharing-graph-coalition")
    return replace(row, params={"conditioning": None, **params})


@pytest.mark.parametrize("neighboring", ["replace_one", "zero_out"])
@pytest.mark.parametrize("unit", ["record", "agent"])
def test_every_coalition_learns_exactly_what_is_claimed_on_linear_losses(unit, neighboring):
    X, y = np.ones((len(AGENTS), 2)), np.full(len(AGENTS), 2.0)
    for coalition, n_curators in itertools.product((1, 2, 3), (None, 2)):
        row = row_of(privacy_unit=unit, neighboring=neighboring, coalition=coalition)
        knobs = {**row.linear, "n_curators": n_curators}
        y2 = np.where(np.isin(np.arange(len(y)), row.first_unit), -2.0, y)
        recorded = record(row, X, y, algorithm=knobs)
        found = list(moves(recorded, replay(row, recorded, X, y2, algorithm=knobs)))
        plan = recorded.plan
        shift = math.hypot(*(move.distance for move in found))
        shares = np.asarray(plan.releases[-1].agent_noise_std)[plan.facts.agents.kind]
        for observer in ("eavesdropper", "peer", "model"):
            # What is left of a sum without the noise that the coalition knows, its own.
            knows = 0 if observer == "model" else coalition
            left = N_AGENTS - knows if knows < (n_curators or N_AGENTS) else 1
            others = np.sort(shares[1:])[: left - 1]
            exact = shift / math.hypot(shares[0], *others)
            exact /= 1 if neighboring == "replace_one" else 2
            claimed = plan.guarantees(observer)[plan.facts.agents.kind[0]].mu
            # Grids cost two cells of a millionth each.
            assert exact <= claimed * (1 + 1e-9)
            assert exact == pytest.approx(claimed, rel=1e-5)


def test_what_a_coalition_does_not_know_of_a_sum_has_the_noise_of_all_others(monkeypatch):
    seen = []

    def kept(residues, n_curators, modulus):
        assert modulus == 2**64
        seen.append(residues.view(np.int64).copy())
        return share_and_sum(residues, n_curators, modulus)

    monkeypatch.setattr(gate_module, "share_and_sum", kept)
    model = DPDecentralizedRegressor(
        algorithm=SecretSharingGradientDescent(), n_agents=7, coalition=3, max_iter=40,
        conditioning=None, feature_bounds=(-1, 1), random_state=0,
    )  # fmt: skip
    model.fit(np.zeros((70, 30)), np.zeros(70))
    release = model.plan(70, 30).releases[-1]
    noise = np.array(seen)[..., 0] * release.cell
    messages = np.array(seen[0])[:, :, 0]
    total = centred(share_and_sum(residues_of(messages, 2**64), 7, 2**64), 2**64)
    for size in range(7):
        for members in itertools.islice(itertools.combinations(range(7), size), 3):
            known = total - messages[list(members)].sum(axis=0)
            others = [agent for agent in range(7) if agent not in members]
            np.testing.assert_array_equal(known, seen[0][others, :, 0].sum(axis=0))
            left = noise[:, others].sum(axis=1)[:, :-1]
            expected = math.sqrt(7 - size) * release.agent_noise_std[0]
            assert left.std() == pytest.approx(expected, rel=5 / math.sqrt(2 * left.size) + 0.02)


# The protocol as printed: gradients at hidden models of one's own.


def printed_inflation(h, n_honest, n_rounds):
    """Squared mu of all sums over that of fresh noise, from the covariance of what is seen.

    Agents' losses are quadratic with ``h = step * curvature``, but for the victim's, which is
    linear. A sum shows the victim's shift and noise, and of every other agent what is hidden of
    its model: its noise, less h times what was hidden the round before.
    """
    rounds = np.arange(n_rounds)
    left = np.tril(np.power(-h, np.maximum(rounds[:, None] - rounds, 0)))
    covariance, ones = np.eye(n_rounds) + (n_honest - 1) * left @ left.T, np.ones(n_rounds)
    return ones @ np.linalg.solve(covariance, ones) * n_honest / n_rounds


def test_printed_rounds_tell_more_than_was_claimed_and_up_to_four_times_as_much_in_squares():
    for h in (0.1, 0.5, 1.0):
        expected = (h**2 + 2 * h + 4) / (h**2 + 4)
        assert printed_inflation(h, 2, 2) == pytest.approx(expected, rel=1e-12)
    assert expected == 1.4
    for n_honest, inflation in ((2, 1.6), (10, 3.06), (100, 3.86)):
        assert printed_inflation(1.0, n_honest, 100) == pytest.approx(inflation, abs=0.005)
        assert printed_inflation(0.1, n_honest, 100) <= 1.21


def test_messages_follow_from_sums_that_were_released_and_from_no_hidden_model():
    row = row_of(max_iter=5, alpha=0.0)
    X, y = row.data()
    knobs = {"clip_norm": 5.0, "step_size": 0.7, "momentum": 0.5}
    still = record(row, X, y, algorithm=knobs)
    for gate in still.gates:
        gate.passages = [replace(p, out=np.zeros_like(p.out)) for p in gate.passages]
    # Sums of zero leave the public model where it is, and so all that agents say.
    values = [passage.value for passage in replay(row, still, X, y, algorithm=knobs).passages]
    for value in values[1:]:
        np.testing.assert_array_equal(value, values[0])
