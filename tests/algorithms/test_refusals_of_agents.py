"""What algorithms of agents refuse: knobs out of range, alone and together, and facts."""

from __future__ import annotations

import math

import pytest

from skdpadmm import algorithms as alg
from skdpadmm.penalties import L1, Box
from tests.algorithms.agents import make_task, planned

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
    alg.MultiStepADMM: STEPS | {
        "inner_steps": [*COUNT, "auto"], "penalty_weight": SIZE[:2], "diameter": [0, NAN, "auto"],
        "proximal_weight": [0, NAN, math.inf, "auto", True], "batch_fraction": SHARE,
    },
    alg.DecentralizedGradientDescent: STEPS | {"mixing": ["fast"], "batch_fraction": SHARE},
    alg.RandomizedADMM: RANDOM | {
        "aggregator": NAME, "local_step": ["linearised"], "curvature": SIZE, "dual_step": SIZE,
        "tolerance": [2.0], "noise_decay": [3.0, 1.9, "auto"],
    },
    alg.RandomizedGradientDescent: RANDOM | {
        "mixing": ["laplacian"], "step_size": SIZE, "step_power": [-0.1], "step_decay": [1.1],
        "noise_decay": [3.0], "order_seed": SEED,
    },
    alg.RandomizedSGD: RANDOM | {"rounds": COUNT, "step_size": SIZE, "order_seed": SEED},
    alg.RandomWalkADMM: WALK | {"tail_fraction": SHARE},
    alg.RandomWalkProximalPoint: WALK,
    alg.SecretSharingGradientDescent: STEPS | {
        "momentum": [-0.1, 1.0, NAN, "fast"], "n_curators": [0, 1, 5, 2.5, "3", True, [3]],
        "modulus": [0, 1, 2**65, 101.0, None, True],
    },
    alg.PersonalizedCoordinateDescent: {
        "turns": COUNT, "averaging_wakes": [*SEED, "many"], "noise": NAME, "split": ["printed"],
        "clip_norm": SIZE, "warm_start": ["local"], "tempered": FLAG, "clock": ["global"],
        "order_seed": SEED, "compiled": FLAG,
    },
    alg.LocalModels: {"turns": COUNT, "noise": NAME, "clip_norm": SIZE},
}  # fmt: skip
PERSONAL = (alg.PersonalizedCoordinateDescent, alg.LocalModels, alg.PersonalizedOptimum)


def task_for(algorithm, **changed):
    is_personal = isinstance(algorithm, PERSONAL)
    return make_task(similarity=is_personal or None, **({"max_iter": 80} | changed))


@pytest.mark.parametrize("make", KNOBS)
def test_every_knob_out_of_its_range_is_named_whatever_the_budget(make):
    """There is no knob for the step of personalised descent: it would tell of rows."""
    assert set(KNOBS[make]) == set(make().get_params())
    for knob, values in KNOBS[make].items():
        for value in values:
            algorithm = make(**{knob: value})
            for epsilon in (1.0, math.inf):
                with pytest.raises(ValueError, match=rf"^Got {knob}=.*, expected"):
                    planned(algorithm, task_for(algorithm), epsilon)


MULTINOMIAL, AGENT = {"loss": "multinomial"}, {"unit": "agent"}
REFUSED = [
    (alg.MultiStepADMM(proximal_weight=1.0, step_size=0.5, penalty_weight=0.1), {}, "'auto'"),
    (alg.MultiStepADMM(proximal_weight=1.0), {}, "penalty_weight='auto', expected"),
    (alg.MultiStepADMM(proximal_weight="growing", penalty_weight=0.1), {}, "diameter=inf"),
    (alg.MultiStepADMM(step_size=1.0, penalty_weight=0.26), {}, r"at most 0\.25"),
    (alg.MultiStepADMM(batch_fraction=0.5), AGENT, "with privacy_unit='agent'"),
    (alg.RandomizedADMM(local_step="exact", clip_norm=0.01), MULTINOMIAL, "for 3 scores"),
    (alg.RandomizedSGD(rounds=3), {}, r"rounds=3 .*n_samples=25 .*at most 2"),
    (alg.RandomizedSGD(), {"sizes": (9,)}, r"n_agents=1 .*n_samples=9 .*at least 2 agents"),
    (alg.RandomWalkADMM(), AGENT, "Got privacy_unit='agent'"),
    (alg.RandomWalkADMM(), {"epsilons": (1.0, 2.0, 1.0, 1.0)}, "Got budgets of single agents"),
    (alg.RandomWalkProximalPoint(), {"row_norm": math.inf}, "Got row_norm=inf"),
    (
        alg.RandomWalkProximalPoint(),
        {"penalty": Box(1.0, 2.0)},
        "that is 0 at 0",
    ),
    (alg.RandomWalkADMM(clip_norm=0.1), MULTINOMIAL, "for 3 scores, expected at least"),
    (alg.SecretSharingGradientDescent(), {"sizes": (9, 9)}, "Got 2 agents .*at least 3 agents"),
    (alg.SecretSharingGradientDescent(modulus=2**16), {}, r"modulus=65536, expected at least"),
    (alg.PersonalizedOptimum(), {}, "Got epsilon=1 .*, expected inf"),
    *((make(), {"penalty": L1(0.1)}, r"Got L1\(.*\), expected Squared") for make in PERSONAL),
    (alg.PersonalizedCoordinateDescent(compiled=True), MULTINOMIAL, "Use compiled=False"),
]


@pytest.mark.parametrize(("algorithm", "changed", "message"), REFUSED)
def test_knobs_and_facts_that_no_theorem_covers_are_refused(algorithm, changed, message):
    with pytest.raises(ValueError, match=message):
        planned(algorithm, task_for(algorithm, **changed))
