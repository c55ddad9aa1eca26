"""What is outside a theorem is refused, and the error names it."""

import math

import numpy as np
import pytest

from skdpadmm import privacy as p
from skdpadmm.privacy import GaussianDP, TokenWalk

INF, NAN, P, ANY = math.inf, math.nan, p.NonPrivate(), "any"
TWO = (GaussianDP(1.0), GaussianDP(2.0))
AMPLIFIED = p.AmplifiedIteration(1.0, p.amplification_constant(1.0))


def sampled(q, multiplier, n_rounds):
    return p.PoissonSubsampledGaussian(q, multiplier, n_rounds, "zero_out")


def objective(gradient_ratio, curvature_ratio, *shape):
    return p.PerturbedObjectiveDP(gradient_ratio, curvature_ratio, "zero_out", *shape)


def participation(sensitivities=(1.0, 1.0), noise_std=1.0, probability=0.5, n_rounds=2, cap=None):
    named = {"probability": probability, "n_rounds": n_rounds, "cap": cap}
    return p.participation_mixture(sensitivities, noise_std, **named)


def calibrated(epsilon, delta, family=lambda scale: GaussianDP(1 / scale)):
    return p.calibrate_noise(family, epsilon, delta)


# What is called, the error, and the arguments of each call: positional, or named as a dict.
REFUSED = [
    (GaussianDP, r"mu=.*a float in \[0, inf\)", [(-1.0,), (NAN,), (INF,)]),
    (sampled, "(samp|noi|n_r)", [(0.0, 1, 1), (1.1, 1, 1), (NAN, 1, 1), (0.5, 0, 1), (0.5, 1, 0)]),
    (p.RenyiDP, "", [((1,), (1,)), ((INF,), (1,)), ((3, 2), (1, 1)), ((2,), (-1,)), ((2,), ())]),
    (objective, "(grad|curv|satur)", [(-1, 0), (INF, 0), (1, NAN), (1, 1, ANY, 0.5)]),
    (participation, "(noise|n_r|cap)", [{"noise_std": 0}, {"n_rounds": 1.5}, {"cap": 0}]),
    (participation, "(sensitivity=|1 sens)", [((1.0,),), ((1.0, -1.0),), ((1.0, NAN),)]),
    (participation, r".*use NonPrivate\(\)", [((1e308, 1.0), 1e-308)]),
    (calibrated, "(epsilon|delta)=", [(-1.0, 0.1), (INF, 0.1), (1.0, 0.0)]),
    (calibrated, ".*(no|every) noise", [(1, 0.1, lambda _, g=g: g) for g in (P, GaussianDP(0.0))]),
    # At 1 / c the formula has the value of c: a guard is all that stands in the way.
    (p.last_iterate_mu, r"contraction=.*\[0, 1\]", [(1.0, c, 9) for c in (1.1, -0.1, NAN)]),
    (p.single_use_mu, "(rat|n_s|contr)", [(-1, 2), (NAN, 2), (1, 0), (1, 1.5), (1, 9, 1 + 1e-15)]),
    (p.last_iterate_mu, "(n_iter|ratio)=", [(1, 0.5, 0), (1, 0.5, 1.5), (-1, 1, 2), (INF, 1, 2)]),
    (p.proximal_gradient_contraction, "(smooth|penalty_s)", [(1, 0, INF), (1, 0, 1, -1.0)]),
    (p.AmplifiedIteration, "(ratio|ampl.*|grid_shift)=", [(-1, 1), (1, 0), (1, 1, INF)]),
    (AMPLIFIED.mu_after, "n_iterations( of type|=0)", [([1.5],), ([0],)]),
    (AMPLIFIED.slots, "(a slot=1|n_slots=0|sequence of dim)", [([0, 1], 1), ([0], 0), ([[0]], 1)]),
    (p.mixture_of_slots, "(mu of shape|min|max)", [([],), ([-1.0],), ([NAN],), ([INF],)]),
    (TokenWalk, "(n_agents|n_hops|cap)=", [(0, 5, 1), (3, 0, 1), (3, 5, 0), (3, 5, 1.5)]),
    (TokenWalk, "a transition", [(3, 5, 1, np.eye(2)), (2, 5, 1, np.eye(2))]),
    (TokenWalk, ".*laws", [(2, 5, 1, [[a, b], [b, a]]) for a, b in ((-1, 2), (NAN, 1), (1, 1))]),
    (TokenWalk(4, 10, 2).cost, "agents=.*knows its own rows", [(1, 1), (0, 4)]),
    (TokenWalk(4, 10, 2).worst_cost, "n_peers=4", [(4,)]),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message", "arguments"), REFUSED)
def test_parameters_outside_a_theorem_are_refused(call, message, arguments):
    for bad in arguments:
        with pytest.raises(ValueError, match=f"^Got {message}"):
            call(**bad) if isinstance(bad, dict) else call(*bad)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: p.Mixture((1.0,), (0.5,)), TypeError, "a component 0.5, expected a Guarantee"),
        (lambda: p.worst(0.5), TypeError, ".*expected a Guarantee"),
        (lambda: p.PoissonSubsampledGaussian(0.5, 1.0, 1, "add_one"), ValueError, ".*add_one"),
    ],
)
def test_objects_of_a_wrong_kind_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
