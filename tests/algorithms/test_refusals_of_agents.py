"""What algorithms of agents refuse: knobs out of range, alone and together, and facts."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from skdpadmm.algorithms import (
    DecentralizedGradientDescent,
    DualPerturbationADMM,
    ExactConsensusADMM,
    GossipADMM,
    LocalModels,
    MultiStepADMM,
    PersonalizedCoordinateDescent,
    PersonalizedOptimum,
    PerturbedData,
    PrimalPerturbationADMM,
    RandomizedADMM,
    RandomizedGradientDescent,
    RandomizedSGD,
    RandomWalkADMM,
    RandomWalkProximalPoint,
    SecretSharingGradientDescent,
)
from skdpadmm.algorithms.planning._agent_turns import agent_turns
from skdpadmm.penalties import L1, Box
from tests.algorithms.agents import budget, make_task, similarity_of

NAN = math.nan
SIZE, SHARE, COUNT = [0, -1.0, 1e200, NAN, "big", True], [0, 1.1, NAN, "auto"], [0, 1.5, True, "x"]
SEED, FLAG, NAME = [-1, 0.5, True], ["yes", 1.5], ["student", None]
STEPS = {"step_size": SIZE, "clip_norm": SIZE, "tail_fraction": SHARE}
RANDOM = {"clip_norm": SIZE, "tail_fraction": SHARE, "noise": NAME}
WALK = {
    "step_size": SIZE, "clip_norm": SIZE, "relaxation": [0.0, 1.5, True], "tolerance": [0.0, 2.0],
    "max_contributions": [0, 2.5],
}  # fmt: skip
KNOBS = {
    MultiStepADMM: STEPS | {
        "inner_steps": [*COUNT, "auto"], "penalty_weight": SIZE[:2], "diameter": [0, NAN, "auto"],
        "proximal_weight": [0, NAN, math.inf, "auto", True], "batch_fraction": SHARE,
    },
    DecentralizedGradientDescent: STEPS | {"mixing": ["fast"], "batch_fraction": SHARE},
    RandomizedADMM: RANDOM | {
        "aggregator": NAME, "local_step": ["linearised"], "curvature": SIZE, "dual_step": SIZE,
        "tolerance": [2.0], "noise_decay": [3.0, 1.9, "auto"],
    },
    RandomizedGradientDescent: RANDOM | {
        "mixing": ["laplacian"], "step_size": SIZE, "step_power": [-0.1], "step_decay": [1.1],
        "noise_decay": [3.0], "order_seed": SEED,
    },
    RandomizedSGD: RANDOM | {"rounds": COUNT, "step_size": SIZE, "order_seed": SEED},
    RandomWalkADMM: WALK | {"tail_fraction": SHARE},
    RandomWalkProximalPoint: WALK,
    PrimalPerturbationADMM: {
        "clip_norm": SIZE, "penalty_weight": SIZE, "tail_fraction": SHARE, "tolerance": [2.0],
    },
    DualPerturbationADMM: {
        "clip_norm": SIZE, "penalty_weight": SIZE, "tail_fraction": SHARE, "max_rounds": COUNT,
    },
    ExactConsensusADMM: {"penalty_weight": SIZE, "tolerance": [0.0], "max_rounds": COUNT},
    SecretSharingGradientDescent: STEPS | {
        "momentum": [-0.1, 1.0, NAN, "fast"], "n_curators": [0, 1, 5, 2.5, "3", True, [3]],
        "modulus": [0, 1, 2**65, 101.0, None, True],
    },
    PersonalizedCoordinateDescent: {
        "turns": COUNT, "averaging_wakes": [*SEED, "many"], "noise": NAME, "split": ["printed"],
        "clip_norm": SIZE, "warm_start": ["local"], "tempered": FLAG, "clock": ["global"],
        "order_seed": SEED, "compiled": FLAG,
    },
    LocalModels: {"turns": COUNT, "noise": NAME, "clip_norm": SIZE},
    GossipADMM: {
        "penalty_weight": SIZE, "inner_steps": COUNT, "start": ["there"], "order_seed": SEED,
    },
    PerturbedData: {"models": ["both"], "noise": ["cauchy"], "target_share": [0.0, 1]},
}  # fmt: skip
PERSONAL = (PersonalizedCoordinateDescent, LocalModels, GossipADMM, PerturbedData)


def facts_for(algorithm, **changed):
    is_personal = isinstance(algorithm, (*PERSONAL, PersonalizedOptimum))
    facts = make_task(
        similarity=True if is_personal else None, **({"max_iter": 80} | changed)
    ).facts
    sharing = getattr(algorithm, "share_among", lambda agents: agents)
    return dataclasses.replace(facts, agents=sharing(facts.agents))


@pytest.mark.parametrize("make", KNOBS)
def test_every_knob_out_of_its_range_is_named_whatever_the_budget(make):
    """There is no knob for the step of personalised descent: it would tell of rows."""
    assert set(KNOBS[make]) == set(make().get_params())
    for knob, values in KNOBS[make].items():
        for value in values:
            algorithm = make(**{knob: value})
            for epsilon in (1.0, math.inf):
                with pytest.raises(ValueError, match=rf"^Got {knob}=.*, expected"):
                    algorithm.plan(facts_for(algorithm), budget(epsilon))


GROWING = {"proximal_weight": "growing"}
MULTINOMIAL, AGENT = {"loss": "multinomial"}, {"unit": "agent"}
REFUSED = [
    (MultiStepADMM(proximal_weight=1.0, step_size=0.5, penalty_weight=0.1), {}, "step_size='auto'"),
    (MultiStepADMM(proximal_weight=1.0), {}, "penalty_weight='auto', expected"),
    (MultiStepADMM(**GROWING, diameter=2.0), {}, "penalty_weight='auto', expected"),
    (MultiStepADMM(**GROWING, penalty_weight=0.1), {}, "diameter=inf, expected a finite"),
    (MultiStepADMM(step_size=1.0, penalty_weight=0.26), {}, r"neighbours, expected at most 0\.25"),
    (MultiStepADMM(batch_fraction=0.5), AGENT, "Got batch_fraction=0.5 with privacy_unit='agent'"),
    (DecentralizedGradientDescent(batch_fraction=0.5), AGENT, "batches of records protect records"),
    (RandomizedADMM(local_step="exact", clip_norm=0.01), MULTINOMIAL, "for 3 scores.*linearized"),
    (RandomizedSGD(rounds=3), {}, r"rounds=3 .*n_samples=25 .*at most 2"),
    (RandomizedSGD(), {"sizes": (9,)}, r"n_agents=1 .*n_samples=9 .*at least 2 agents"),
    (RandomWalkADMM(), AGENT, "Got privacy_unit='agent'"),
    (RandomWalkADMM(), {"epsilons": (1.0, 2.0, 1.0, 1.0)}, "Got budgets of single agents"),
    (RandomWalkProximalPoint(), {"row_norm": math.inf}, "Got row_norm=inf"),
    (RandomWalkProximalPoint(), {"penalty": Box(1.0, 2.0)}, "expected a penalty that is 0 at 0"),
    (RandomWalkADMM(clip_norm=0.1), MULTINOMIAL, "for 3 scores, expected at least"),
    (PrimalPerturbationADMM(clip_norm=0.1), MULTINOMIAL, "for 3 scores, expected at least"),
    (DualPerturbationADMM(), MULTINOMIAL, "Got 3 scores for DualPerturbationADMM, expected one"),
    (DualPerturbationADMM(), AGENT, "Got privacy_unit='agent' for DualPerturbationADMM"),
    (DualPerturbationADMM(penalty_weight=1e-4), {}, "the curvature of one record is"),
    (ExactConsensusADMM(), {}, "Got epsilon=1 for ExactConsensusADMM, expected inf"),
    (SecretSharingGradientDescent(), {"sizes": (9, 9)}, "Got 2 agents .*at least 3 agents"),
    (
        SecretSharingGradientDescent(modulus=2**16),
        {},
        r"modulus=65536, expected at least \d+ \(2\*",
    ),
    (GossipADMM(), {}, "Got epsilon=1 for GossipADMM, expected inf"),
    (GossipADMM(), {"sizes": (9,)}, "Got one agent for GossipADMM, expected two"),
    (PersonalizedOptimum(), {}, "Got epsilon=1 .*, expected inf"),
    (PerturbedData(), AGENT, "expected 'record'"),
    *(
        (make(), {"penalty": L1(0.1)}, r"Got L1\(.*\), expected SquaredL2 or none")
        for make in PERSONAL
    ),
    (PersonalizedCoordinateDescent(compiled=True), MULTINOMIAL, "Use compiled=False"),
]


@pytest.mark.parametrize(("algorithm", "changed", "message"), REFUSED)
def test_knobs_and_facts_that_no_theorem_covers_are_refused(algorithm, changed, message):
    with pytest.raises(ValueError, match=message):
        algorithm.plan(facts_for(algorithm, **changed), budget())


def test_noise_on_a_grid_that_costs_more_than_the_budget_is_refused():
    facts = make_task(similarity=similarity_of(4)).facts
    with pytest.raises(ValueError, match=r"^Got epsilon=0.0001 for 100000 turns, expected more"):
        agent_turns(facts, budget(1e-4, 1e-12), name="", weights=np.ones(100_000), law="laplace")
