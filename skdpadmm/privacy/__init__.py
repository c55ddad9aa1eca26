"""Guarantees: frozen objects that answer delta(epsilon) and epsilon(delta), and compose.

This room knows nothing of optimisation or data. Importing it is cheap: dp-accounting, the optional
extra ``[accounting]``, is loaded when a privacy loss distribution or a Renyi conversion is asked
for.
"""

from __future__ import annotations

from skdpadmm.privacy import literature
from skdpadmm.privacy._amplification import (
    AmplifiedIteration,
    StronglyConvexADMM,
    amplification_constant,
    contribution_mu,
    mixture_of_slots,
    strongly_convex_certificate,
    strongly_convex_step_range,
)
from skdpadmm.privacy._calibration import calibrate_noise
from skdpadmm.privacy._composition import Composed, compose
from skdpadmm.privacy._contraction import (
    averaged_admm_contraction,
    last_iterate_mu,
    proximal_gradient_contraction,
    reflected_prox_contraction,
    single_use_mu,
)
from skdpadmm.privacy._expected_loss import (
    expected_privacy_loss_factor,
    expected_privacy_loss_factor_bound,
    expected_privacy_loss_factor_ceiling,
    total_expected_privacy_loss_factor,
)
from skdpadmm.privacy._formatting import round_down, round_up, text_table
from skdpadmm.privacy._from_dict import guarantee_from_dict
from skdpadmm.privacy._gaussian import GaussianDP, gaussian_mu
from skdpadmm.privacy._guarantee import Guarantee, NonPrivate
from skdpadmm.privacy._laplace import LaplaceDP, kov_epsilon
from skdpadmm.privacy._mixture import Mixture
from skdpadmm.privacy._neighboring import Neighboring
from skdpadmm.privacy._objective_perturbation import LossDerivative, PerturbedObjectiveDP
from skdpadmm.privacy._pairs import Pairs
from skdpadmm.privacy._participation import participation_mixture, worst_participation
from skdpadmm.privacy._perturbed_rounds import perturbed_objective_rdp
from skdpadmm.privacy._randomized_response import RandomizedResponseDP
from skdpadmm.privacy._renyi import RenyiDP
from skdpadmm.privacy._renyi_filter import RenyiFilter
from skdpadmm.privacy._report import Observer, PrivacyReport, ReleaseLine
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
from skdpadmm.privacy._splits import gaussian_steps, laplace_steps, split_budget
from skdpadmm.privacy._token_walk import TokenWalk, WalkCost
from skdpadmm.privacy._uniform_laplace import UniformLaplace
from skdpadmm.privacy._uniform_laplace_dp import UniformLaplaceDP, compose_uniform_laplace
from skdpadmm.privacy._worst import Worst, worst

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
    "RandomizedResponseDP",
    "ReleaseLine",
    "RenyiDP",
    "RenyiFilter",
    "StronglyConvexADMM",
    "TokenWalk",
    "TrialLaw",
    "UniformLaplace",
    "UniformLaplaceDP",
    "WalkCost",
    "Worst",
    "amplification_constant",
    "any_of",
    "averaged_admm_contraction",
    "best_of_trials",
    "calibrate_noise",
    "calibrate_trial",
    "compose",
    "compose_uniform_laplace",
    "contribution_mu",
    "expected_privacy_loss_factor",
    "expected_privacy_loss_factor_bound",
    "expected_privacy_loss_factor_ceiling",
    "gaussian_mu",
    "gaussian_steps",
    "guarantee_from_dict",
    "kov_epsilon",
    "laplace_steps",
    "last_iterate_mu",
    "literature",
    "mixture_of_slots",
    "participation_mixture",
    "perturbed_objective_rdp",
    "proximal_gradient_contraction",
    "reflected_prox_contraction",
    "renyi_divergences",
    "round_down",
    "round_up",
    "single_use_mu",
    "split_budget",
    "strongly_convex_certificate",
    "strongly_convex_step_range",
    "text_table",
    "total_expected_privacy_loss_factor",
    "worst",
    "worst_participation",
]
