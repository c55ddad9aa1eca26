"""Algorithms that the package is compared with, one file each, on its public contract alone.

An algorithm says what a fit will release and how much noise that takes in ``plan``, which sees no
data, and passes everything that it makes of data through a gate in ``run``. Each of these is passed
to an estimator as an object: ``DPDecentralizedRegressor(algorithm=PrimalPerturbationADMM())``.
"""

from .dual_perturbation_admm import DualPerturbationADMM
from .exact_consensus_admm import ExactConsensusADMM
from .gossip_admm import GossipADMM
from .perturbed_data import PerturbedData
from .primal_perturbation_admm import PrimalPerturbationADMM

__all__ = [
    "DualPerturbationADMM",
    "ExactConsensusADMM",
    "GossipADMM",
    "PerturbedData",
    "PrimalPerturbationADMM",
]
