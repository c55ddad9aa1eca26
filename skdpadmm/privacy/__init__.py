"""Guarantees: frozen objects that answer delta(epsilon) and epsilon(delta), and compose.

Nothing here depends on optimisation or data. Importing it is cheap: dp-accounting, the optional
extra ``[accounting]``, is loaded when a privacy loss distribution is asked for. A parameter
outside the range that its entry states is refused by a ``ValueError``.
"""

from __future__ import annotations

from skdpadmm._numbers import round_down, round_up
from skdpadmm.privacy._composition import Composed, compose, compose_counts
from skdpadmm.privacy._gaussian import GaussianDP, calibrate_noise, gaussian_mu
from skdpadmm.privacy._guarantee import Guarantee, Neighboring, NonPrivate, guarantee_from_dict
from skdpadmm.privacy._laplace import LaplaceDP
from skdpadmm.privacy._last_iterate import (
    AmplifiedIteration,
    amplification_constant,
    averaged_admm_contraction,
    contribution_mu,
    last_iterate_mu,
    proximal_gradient_contraction,
    reflected_prox_contraction,
    single_use_mu,
    split_budget,
)
from skdpadmm.privacy._mixture import (
    Mixture,
    Worst,
    mixture_of_slots,
    participation_mixture,
    worst,
    worst_participation,
)
from skdpadmm.privacy._objective_perturbation import LossDerivative, PerturbedObjectiveDP
from skdpadmm.privacy._renyi import RenyiDP
from skdpadmm.privacy._report import Observer, Pairs, PrivacyReport, ReleaseLine
from skdpadmm.privacy._sampled import PoissonSubsampledGaussian
from skdpadmm.privacy._selection import (
    NegativeBinomialTrials,
    PoissonTrials,
    TrialLaw,
    any_of,
    best_of_trials,
    calibrate_trial,
    renyi_divergences,
)
from skdpadmm.privacy._token_walk import StatelessToken, TokenPairs, TokenWalk, WalkCost

__all__ = [
    "AmplifiedIteration",
    "Composed",
    "GaussianDP",
    "Guarantee",
    "LaplaceDP",
    "LossDerivative",
    "Mixture",
    "NegativeBinomialTrials",
    "Neighboring",
    "NonPrivate",
    "Observer",
    "Pairs",
    "PerturbedObjectiveDP",
    "PoissonSubsampledGaussian",
    "PoissonTrials",
    "PrivacyReport",
    "ReleaseLine",
    "RenyiDP",
    "StatelessToken",
    "TokenPairs",
    "TokenWalk",
    "TrialLaw",
    "WalkCost",
    "Worst",
    "amplification_constant",
    "any_of",
    "averaged_admm_contraction",
    "best_of_trials",
    "calibrate_noise",
    "calibrate_trial",
    "compose",
    "compose_counts",
    "contribution_mu",
    "gaussian_mu",
    "guarantee_from_dict",
    "last_iterate_mu",
    "mixture_of_slots",
    "participation_mixture",
    "proximal_gradient_contraction",
    "reflected_prox_contraction",
    "renyi_divergences",
    "round_down",
    "round_up",
    "single_use_mu",
    "split_budget",
    "worst",
    "worst_participation",
]
