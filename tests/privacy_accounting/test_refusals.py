"""What is outside a theorem is refused, and the error names it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from skdpadmm import privacy as p
from skdpadmm.privacy import GaussianDP, RenyiFilter, TokenWalk, UniformLaplace, UniformLaplaceDP

INF, NAN, P, ANY = math.inf, math.nan, p.NonPrivate(), "any"
TWO = (GaussianDP(1.0), GaussianDP(2.0))
AMPLIFIED, FILTER = p.AmplifiedIteration(1.0, p.amplification_constant(1.0)), RenyiFilter(2.0, 1.0)
SPENT, MOVES = RenyiFilter(4.0, 0.1, 0.1), UniformLaplaceDP((1.0,), (1.0,), (0.1,))
STRONG = {"strong_convexity": 0.5, "smoothness": 0.5, "penalty_strong_convexity": 0.2}
REST = {"coupling_norm": 1.0, "smallest_singular_value": 1.0, "largest_singular_value": 1.0}


def sampled(q, multiplier, n_rounds):
    return p.PoissonSubsampledGaussian(q, multiplier, n_rounds, "zero_out")


def objective(gradient_ratio, curvature_ratio, *shape):
    return p.PerturbedObjectiveDP(gradient_ratio, curvature_ratio, "zero_out", *shape)


def participation(sensitivities=(1.0, 1.0), noise_std=1.0, probability=0.5, n_rounds=2, cap=None):
    named = {"probability": probability, "n_rounds": n_rounds, "cap": cap}
    return p.participation_mixture(sensitivities, noise_std, **named)


def calibrated(epsilon, delta, family=lambda scale: GaussianDP(1 / scale)):
    return p.calibrate_noise(family, epsilon, delta)


def certified(step_size, **changes):
    return p.strongly_convex_certificate(step_size, 0.9, **(STRONG | REST | changes))


WEAK = objective(0.1, 0.1)


def cost(rate=1.0, widths=(1.0,), **moves):
    return FILTER.cost(rate, widths, **moves)


# What is called, the error, and the arguments of each call: positional, or named as a dict.
REFUSED = [
    (GaussianDP, r"mu=.*a float in \[0, inf\)", [(-1.0,), (NAN,), (INF,)]),
    (p.gaussian_mu, "(epsilon|delta)=", [(-1.0, 1e-6), (INF, 1e-6), (1.0, 0.0), (1.0, NAN)]),
    (p.LaplaceDP, "(epsilons=|counts=|1 ep)", [((-1,),), ((NAN,),), ((1,), (0,)), ((1,), (1, 2))]),
    (p.kov_epsilon, "(epsilons|delta)=", [([-0.1], 0.1), ([NAN], 0.1), ([0.1], 1.1)]),
    (p.RandomizedResponseDP, "(resp|n_lab)", [(-1.0,), (INF,), ("1",), (1.0, 1), (1, 2.5)]),
    (sampled, "(samp|noi|n_r)", [(0.0, 1, 1), (1.1, 1, 1), (NAN, 1, 1), (0.5, 0, 1), (0.5, 1, 0)]),
    (p.RenyiDP, "", [((1,), (1,)), ((INF,), (1,)), ((3, 2), (1, 1)), ((2,), (-1,)), ((2,), ())]),
    (p.Mixture, "(sum.)?weights", [(w, TWO) for w in ((0.5, 0.4), (1.5, -0.5), (NAN, 1.0))]),
    (objective, "(grad|curv|satur)", [(-1, 0), (INF, 0), (1, NAN), (1, 1, ANY, 0.5)]),
    (objective, "(sat|gau)", [(1, 1, "logistic", 0), (1, 1, "logistic", 2), (1, 1, ANY, 1, -1)]),
    (p.perturbed_objective_rdp, "(n_rounds|ord)", [(WEAK, 0), (WEAK, 1, (1.0, 2.0))]),
    (UniformLaplaceDP, "(rates|shifts)=", [((0,), (1,), (1,)), ((1,), (1,), (-1,))]),
    (UniformLaplaceDP, r"(rates . )?widths=", [((1,), (-1,), (0,)), ((1e200,), (1e200,), (1,))]),
    (UniformLaplaceDP, "(counts=|1 rates, 2)", [((1,), (1,), (1,), (0,)), ((1,), (1, 2), (1,))]),
    (UniformLaplaceDP.of_vectors, "widths", [([1, 2], [[1]], 1), ([1], [[1, NAN]], 1)]),
    (MOVES.renyi, "(orders|rtol)=", [((1.0, 2.0),), ((2.0,), 0.0)]),
    (UniformLaplace, "(rate|width)", [(0.0, 1.0), (1.0, -1.0), (1.0, INF), (1e200, 1e200)]),
    (UniformLaplace(1.0, 1.0).quantile, "probability=", [([0.5, 1.5],)]),
    (RenyiFilter, "(or|bud|sp)", [(1, 1), (INF, 1), (2, -1), (2, INF), (2, 1, 1.1), (2, 1, NAN)]),
    (cost, "", [{}, {"rate": -1, "shift": 1}, {"shift": NAN}, {"l1_shift": -1}]),
    (cost, "widths=", [{"widths": w, "shift": 1} for w in ([-1.0], [NAN], [], [INF], [[1.0]])]),
    (FILTER.largest_rate, "(neither|shift=0)", [([1.0],), {"widths": [1.0], "shift": 0.0}]),
    (SPENT.largest_rate, ".*room for a round", [{"widths": [0.5], "shift": 0.1}]),
    (RenyiFilter.of_target, "", [(-1.0, 1e-5), (1.0, 0.0), (1.0, 1e-5, 1.0)]),
    (p.expected_privacy_loss_factor, "", [(0, 1, 1), (NAN, 1, 1), (1, -1, 1), (1, 1, -1)]),
    (p.expected_privacy_loss_factor_ceiling, "", [([1, 0], 1, 1), (1, [-1], 1), (1, 1, [INF])]),
    (p.total_expected_privacy_loss_factor, "", [([1], [1], 1), ([1], [[1]], 0)]),
    (participation, "(noise|n_r|cap)", [{"noise_std": 0}, {"n_rounds": 1.5}, {"cap": 0}]),
    (participation, "probability=", [{"probability": q} for q in (0.0, 1.1, NAN)]),
    (participation, "(sensitivity=|1 sens)", [((1.0,),), ((1.0, -1.0),), ((1.0, NAN),)]),
    (participation, r".*use NonPrivate\(\)", [((1e308, 1.0), 1e-308)]),
    (calibrated, "(epsilon|delta)=", [(-1.0, 0.1), (INF, 0.1), (1.0, 0.0)]),
    (calibrated, ".*(no|every) noise", [(1, 0.1, lambda _, g=g: g) for g in (P, GaussianDP(0.0))]),
    (p.split_budget, "", [("best", 3), ("equal", 0), ("equal", 2, 0.5, "a"), ("optimal", 3, 1.1)]),
    (p.laplace_steps, "weights=.*shape", [(1, 0, w) for w in ([], [0, 1], [-1], [INF], [[1]], 1)]),
    (p.laplace_steps, "(epsilon|delta)=", [(e, d, [1.0]) for e, d in ((0, 0), (INF, 0), (1, 1))]),
    (p.gaussian_steps, "(weights|mu)=", [(1.0, [0.0, 1.0]), (0.0, [1.0]), (INF, [1.0])]),
    # At 1 / c the formula has the value of c: a guard is all that stands in the way.
    (p.last_iterate_mu, r"contraction=.*\[0, 1\]", [(1.0, c, 9) for c in (1.1, -0.1, NAN)]),
    (p.single_use_mu, "(rat|n_s|contr)", [(-1, 2), (NAN, 2), (1, 0), (1, 1.5), (1, 9, 1 + 1e-15)]),
    (p.last_iterate_mu, "(n_iter|ratio)=", [(1, 0.5, 0), (1, 0.5, 1.5), (-1, 1, 2), (INF, 1, 2)]),
    (p.reflected_prox_contraction, "(st|smo)", [(0, 0, 1), (1, -1, 1), (1, 2, 1), (1, 0, NAN)]),
    (p.proximal_gradient_contraction, "(smooth|penalty_s)", [(1, 0, INF), (1, 0, 1, -1.0)]),
    (p.averaged_admm_contraction, "(relaxation|reflected)=", [(0.0, 0.5), (1.1, 0.5), (0.5, 1.1)]),
    (p.amplification_constant, "kappa=", [(0.0,), (NAN,)]),
    (p.contribution_mu, "noise_std=0.0", [(1.0, 1.0, 0.0)]),
    (p.AmplifiedIteration, "(ratio|ampl.*|grid_shift)=", [(-1, 1), (1, 0), (1, 1, INF)]),
    (AMPLIFIED.mu_after, "n_iterations( of type|=0)", [([1.5],), ([0],)]),
    (AMPLIFIED.path, "n_participations=-1", [(-1,)]),
    (AMPLIFIED.slots, "(a slot=1|n_slots=0|sequence of dim)", [([0, 1], 1), ([0], 0), ([[0]], 1)]),
    (AMPLIFIED.random_stopping, "n=0", [(0,)]),
    (p.mixture_of_slots, "(mu of shape|min|max)", [([],), ([-1.0],), ([NAN],), ([INF],)]),
    (p.StronglyConvexADMM, ".*use strongly", [(0.9, 1.0, 0.95, 1.1, 0.8, 1.0, 1.0, 1.0)]),
    (p.StronglyConvexADMM, r"rate=1\.0", [(0.9, 1.0, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0)]),
    (certified, "step_size=.* strictly between ", [(s,) for s in (1.0, 1.5, 2.0, 3.0)]),
    (certified, ".*is empty", [{"step_size": 1.75, name: 0.0} for name in tuple(STRONG)[::2]]),
    (TokenWalk, "(n_agents|n_hops|cap)=", [(0, 5, 1), (3, 0, 1), (3, 5, 0), (3, 5, 1.5)]),
    (TokenWalk, "(a tran.* shape|.*discon)", [(3, 5, 1, np.eye(2)), (2, 5, 1, np.eye(2))]),
    (TokenWalk, ".*not law", [(2, 5, 1, [[a, b], [b, a]]) for a, b in ((-1, 2), (NAN, 1), (1, 1))]),
    (TokenWalk, ".*not symmetric", [(2, 5, 1, [[0.5, 0.5], [0.4, 0.6]])]),
    (TokenWalk(4, 10, 2).cost, "(.*knows its own rows|agent=4)", [(1, 1), (0, 4)]),
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
        (lambda: p.Composed((p.NonPrivate(),)), TypeError, ".*expected GaussianDP or Poisson"),
        (lambda: p.Composed(()), ValueError, "no parts"),
        (lambda: p.compose_uniform_laplace(*TWO), TypeError, ".*expected UniformLaplaceDP or"),
        (lambda: p.worst(0.5), TypeError, ".*expected a Guarantee"),
        (lambda: p.worst(), ValueError, "no components"),
        (lambda: p.PoissonSubsampledGaussian(0.5, 1.0, 1, "add_one"), ValueError, ".*add_one"),
        (lambda: p.PerturbedObjectiveDP(0.5, 1.0, "add_one"), ValueError, ".*add_one"),
    ],
)
def test_objects_of_a_wrong_kind_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
