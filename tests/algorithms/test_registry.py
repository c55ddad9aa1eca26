"""Names of algorithms, algorithm objects, and what is neither."""

from __future__ import annotations

import pytest

from skdpadmm.algorithms import Algorithm, ConsensusADMM, ProximalNewton, resolve_algorithm
from skdpadmm.algorithms._registry import ALGORITHMS


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_a_name_stands_for_the_defaults_of_its_algorithm(name):
    algorithm = resolve_algorithm(name)
    assert type(algorithm) is ALGORITHMS[name]
    assert algorithm.get_params() == ALGORITHMS[name]().get_params()
    assert isinstance(algorithm, Algorithm)
    assert resolve_algorithm(name) is not algorithm


@pytest.mark.parametrize("name", ["ConsensusADMM", "consensus_admm", "", "admm"])
def test_an_unknown_name_is_refused_with_the_known_ones(name):
    with pytest.raises(ValueError, match=f"^Got algorithm='{name}', expected one of .* Pass"):
        resolve_algorithm(name)


@pytest.mark.parametrize("algorithm", [ConsensusADMM(relaxation=0.7), ProximalNewton()])
def test_an_object_is_copied_with_its_knobs(algorithm):
    copy = resolve_algorithm(algorithm)
    assert copy is not algorithm
    assert type(copy) is type(algorithm)
    assert copy.get_params() == algorithm.get_params()


@pytest.mark.parametrize("wrong", [ConsensusADMM, ProximalNewton, None, 3, object(), dict()])
def test_a_class_or_another_object_is_refused(wrong):
    with pytest.raises(
        TypeError, match=r"^Got algorithm=.*, expected .* such as ConsensusADMM\(\)"
    ):
        resolve_algorithm(wrong)


def test_the_registry_cannot_be_changed():
    with pytest.raises(TypeError):
        ALGORITHMS["mine"] = ConsensusADMM
