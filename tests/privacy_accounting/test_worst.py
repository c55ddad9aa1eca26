"""The weakest of several guarantees, and what composes with it."""

from __future__ import annotations

import json
import math

import pytest

from skdpadmm.privacy import (
    GaussianDP,
    Mixture,
    NonPrivate,
    PoissonSubsampledGaussian,
    RenyiDP,
    Worst,
    calibrate_noise,
    compose,
    participation_mixture,
    worst,
    worst_participation,
)

RARE = Mixture((0.9, 0.1), (GaussianDP(0.0), GaussianDP(1.0)))
STEADY = GaussianDP(0.3)


def test_it_is_the_largest_of_its_components_everywhere():
    both = Worst((RARE, STEADY))
    for epsilon in (0.0, 0.1, 0.5, 1.0, 3.0, math.inf):
        assert both.delta(epsilon) == max(RARE.delta(epsilon), STEADY.delta(epsilon))
    for delta in (0.5, 0.1, 1e-3, 1e-6, 1e-9, 0.0):
        assert both.epsilon(delta) == max(RARE.epsilon(delta), STEADY.epsilon(delta))
        assert both.delta(both.epsilon(delta)) <= delta
    assert STEADY.delta(0.0) > RARE.delta(0.0)
    assert STEADY.delta(1.0) < RARE.delta(1.0)


def test_it_is_said_as_simply_as_possible():
    assert worst(STEADY) is STEADY
    assert worst(RARE, RARE) == RARE
    assert worst(*(GaussianDP(mu) for mu in (0.1, 0.5, 0.0, 0.5))) == GaussianDP(0.5)
    assert worst(RARE, STEADY, GaussianDP(0.2)) == Worst((RARE, STEADY))
    assert worst(RARE, worst(RARE, STEADY), STEADY) == Worst((RARE, STEADY))
    assert worst(RARE, NonPrivate(), STEADY) == worst(Worst((NonPrivate(),))) == NonPrivate()


def test_nothing_and_what_is_no_guarantee_are_refused():
    for make in (worst, lambda *parts: Worst(parts)):
        with pytest.raises(ValueError, match="Got no components"):
            make()
        with pytest.raises(TypeError, match="expected a Guarantee"):
            make(0.5)


@pytest.mark.parametrize("argument", [-1.0, math.nan])
def test_arguments_out_of_range_are_refused(argument):
    with pytest.raises(ValueError, match="Got epsilon"):
        Worst((STEADY,)).delta(argument)
    with pytest.raises(ValueError, match="Got delta"):
        Worst((STEADY,)).epsilon(argument)


def test_composition_distributes_over_the_components():
    other = GaussianDP(0.4)
    composed = compose(Worst((RARE, STEADY)), other)
    assert composed == worst(compose(RARE, other), compose(STEADY, other))
    assert composed == worst(compose(RARE, other), GaussianDP(0.5))
    assert compose(Worst((RARE, STEADY)), NonPrivate()) == NonPrivate()
    assert compose(Worst((RARE, STEADY))) == Worst((RARE, STEADY))
    assert compose(Worst((GaussianDP(3.0), STEADY)), GaussianDP(4.0)) == GaussianDP(5.0)


def test_equal_worst_cases_compose_by_how_often_each_occurs():
    composed = compose(*[Worst((RARE, STEADY))] * 6)
    pure = [compose(*[part] * 6) for part in (RARE, STEADY)]
    assert len(composed.components) == 7
    for epsilon in (0.0, 0.5, 2.0):
        assert composed.delta(epsilon) >= max(part.delta(epsilon) for part in pure)


def test_a_worst_case_within_a_label_composes_there():
    labelled = Mixture((0.5, 0.5), (Worst((RARE, STEADY)), GaussianDP(0.0)))
    composed = compose(labelled, GaussianDP(0.4))
    assert composed.components == (
        compose(Worst((RARE, STEADY)), GaussianDP(0.4)),
        GaussianDP(0.4),
    )


def test_a_worst_case_of_an_unproven_combination_is_refused():
    sampled = PoissonSubsampledGaussian(0.1, 20.0, 100, "zero_out")
    with pytest.raises(TypeError, match="RenyiDP together with PoissonSubsampledGaussian"):
        compose(Worst((STEADY, RenyiDP((2.0,), (0.5,)))), sampled)


def test_more_combinations_than_memory_holds_are_refused():
    parts = [
        Worst((Mixture((1.0,), (GaussianDP(i + 1.0),)), GaussianDP(i + 1.5))) for i in range(20)
    ]
    with pytest.raises(ValueError, match="more than 100000 combinations"):
        compose(*parts)


def test_it_serialises_and_describes_itself():
    both = Worst((RARE, STEADY))
    dictionary = both.to_dict()
    assert dictionary["kind"] == "worst"
    assert json.loads(json.dumps(dictionary, allow_nan=False)) == dictionary
    assert both.describe() == "worst of 2 guarantees"
    assert hash(both) == hash(Worst((RARE, STEADY)))


def test_agents_of_different_sizes_are_calibrated_for_the_worst():
    def family(noise_std):
        rare = participation_mixture((5.0,) * 20, noise_std, probability=0.1, n_rounds=20)
        return worst(rare, worst_participation((1.0,) * 20, noise_std, n_rounds=20))

    noise = calibrate_noise(family, 1.0, 1e-6)
    assert family(noise).delta(1.0) <= 1e-6 < family(noise * (1 - 1e-5)).delta(1.0)
