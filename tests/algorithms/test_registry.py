"""Names of algorithms, algorithm objects, and what is neither."""

from __future__ import annotations

import pytest

from skdpadmm.algorithms import Algorithm, ConsensusADMM, ProximalNewton, resolve_algorithm
from skdpadmm.algorithms._registry import ALGORITHMS


@pytest.mark.parametrize("given", [*sorted(ALGORITHMS), ConsensusADMM(relaxation=0.7)], ids=str)
def test_a_name_stands_for_defaults_and_an_object_is_copied(given):
    found, model = resolve_algorithm(given), ALGORITHMS[given]() if given in ALGORITHMS else given
    assert isinstance(found, Algorithm)
    assert type(found) is type(model)
    assert found.get_params() == model.get_params()
    assert resolve_algorithm(given) is not found is not given


def test_what_is_neither_is_refused_with_what_was_expected():
    for name in ("ConsensusADMM", "consensus_admm", ""):
        with pytest.raises(ValueError, match=f"^Got algorithm='{name}', expected one of .* Pass"):
            resolve_algorithm(name)
    for wrong in (ProximalNewton, None, 3, object(), {}):
        with pytest.raises(TypeError, match=r"^Got algorithm=.*such as ConsensusADMM\(\)"):
            resolve_algorithm(wrong)
    with pytest.raises(TypeError):
        ALGORITHMS["mine"] = ConsensusADMM
