"""Algorithms that the package is compared with, one file each, on its public contract alone.

Pass one to an estimator as an object, for instance
``DPDecentralizedRegressor(algorithm=PrimalPerturbationADMM())``.
"""

from .dual_perturbation_admm import DualPerturbationADMM
from .exact_consensus_admm import ExactConsensusADMM
from .gossip_admm import GossipADMM
from .growing_penalty_admm import GrowingPenaltyADMM
from .perturbed_data import PerturbedData
from .primal_perturbation_admm import PrimalPerturbationADMM
from .recycled_admm import RecycledADMM

__all__ = [
    "DualPerturbationADMM",
    "ExactConsensusADMM",
    "GossipADMM",
    "GrowingPenaltyADMM",
    "PerturbedData",
    "PrimalPerturbationADMM",
    "RecycledADMM",
]
