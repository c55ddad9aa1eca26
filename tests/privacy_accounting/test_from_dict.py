"""Guarantees through JSON text and back."""

from __future__ import annotations

import importlib
import json
import pkgutil

import numpy as np
import pytest

import skdpadmm.privacy
from skdpadmm.privacy import (
    Composed,
    GaussianDP,
    Guarantee,
    LaplaceDP,
    Mixture,
    NonPrivate,
    PerturbedObjectiveDP,
    PoissonSubsampledGaussian,
    RandomizedResponseDP,
    RenyiDP,
    UniformLaplaceDP,
    Worst,
    compose,
    guarantee_from_dict,
)

SAMPLED = PoissonSubsampledGaussian(0.1, 1.0 / 3.0, 7, "replace_one")
EXAMPLES: dict[type[Guarantee], list[Guarantee]] = {
    NonPrivate: [NonPrivate()],
    GaussianDP: [
        GaussianDP(0.0),
        GaussianDP(1),
        GaussianDP(0.1 + 0.2),
        GaussianDP(np.float64(0.3)),
    ],
    LaplaceDP: [LaplaceDP(()), LaplaceDP((0.1, 1.0 / 3.0), (100, 2)), LaplaceDP((1e-300, 0.0))],
    UniformLaplaceDP: [
        UniformLaplaceDP((), (), ()),
        UniformLaplaceDP((2.0, 3.0), (0.0, 1.0 / 3.0), (0.1, 0.2), (3, 1)),
    ],
    RandomizedResponseDP: [RandomizedResponseDP(0.0), RandomizedResponseDP(1.1, 5)],
    PoissonSubsampledGaussian: [
        SAMPLED,
        PoissonSubsampledGaussian(1, 2.0, np.int64(3), "zero_out"),
    ],
    PerturbedObjectiveDP: [
        PerturbedObjectiveDP(0.2, 0.05, "zero_out"),
        PerturbedObjectiveDP(0.2, 0.05, "replace_one", "logistic", 0.25, 0.1),
    ],
    RenyiDP: [RenyiDP((1.5, 2.0), (0.1, float("inf"))), RenyiDP((2,), (0,))],
    Composed: [Composed((SAMPLED, GaussianDP(0.1), LaplaceDP((0.2,)), RandomizedResponseDP(0.3)))],
    Mixture: [
        Mixture((0.5, 0.5), (GaussianDP(0.0), Worst((LaplaceDP((1.0,)), GaussianDP(0.3))))),
        Mixture((1.0 / 3.0, 2.0 / 3.0), (GaussianDP(0.1), SAMPLED)),
    ],
    Worst: [Worst((GaussianDP(0.1), Mixture((1.0,), (SAMPLED,)))), Worst((NonPrivate(),))],
}


def all_guarantees() -> list[type[Guarantee]]:
    """Every concrete guarantee of the room, found by looking."""
    for module in pkgutil.iter_modules(skdpadmm.privacy.__path__):
        importlib.import_module(f"skdpadmm.privacy.{module.name}")
    found, new = set(), [Guarantee]
    while new:
        new = [kind for parent in new for kind in parent.__subclasses__()]
        found.update(new)
    ours = (kind for kind in found if kind.__module__.startswith("skdpadmm.privacy."))
    return sorted(ours, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", all_guarantees())
def test_every_kind_survives_json(kind):
    for guarantee in EXAMPLES[kind]:
        text = json.dumps(guarantee.to_dict(), allow_nan=False)
        read = guarantee_from_dict(json.loads(text))
        assert type(read) is kind
        assert read == guarantee
        assert hash(read) == hash(guarantee)
        assert json.dumps(read.to_dict()) == text


def test_what_was_read_composes_to_the_same():
    parts = (GaussianDP(0.1), LaplaceDP((0.2,)), SAMPLED)
    read = [guarantee_from_dict(json.loads(json.dumps(part.to_dict()))) for part in parts]
    assert compose(*read) == compose(*parts)


@pytest.mark.parametrize("kind", all_guarantees())
def test_every_field_is_needed_and_no_other_is_taken(kind):
    plain = EXAMPLES[kind][0].to_dict()
    with pytest.raises(ValueError, match="fields"):
        guarantee_from_dict({**plain, "another": 1.0})
    for name in set(plain) - {"kind"}:
        with pytest.raises(ValueError, match="fields"):
            guarantee_from_dict({key: value for key, value in plain.items() if key != name})


@pytest.mark.parametrize("kind", all_guarantees())
@pytest.mark.parametrize("wrong", [None, True, {}, "0.1", [["0.1"]], [None], [{"kind": None}]])
def test_wrong_types_are_refused(kind, wrong):
    plain = EXAMPLES[kind][-1].to_dict()
    for name in set(plain) - {"kind"}:
        with pytest.raises((TypeError, ValueError), match=r"Got .* expected"):
            guarantee_from_dict({**plain, name: wrong})


@pytest.mark.parametrize("kind", ["gauss", "", None, [], {}, 1, "GaussianDP", "__reduce__"])
def test_unknown_kinds_are_refused(kind):
    with pytest.raises(ValueError, match="expected one of"):
        guarantee_from_dict({"kind": kind, "mu": 1.0})


@pytest.mark.parametrize("plain", [None, [], "gaussian", 1.0, b"{}"])
def test_what_is_no_dict_is_refused(plain):
    with pytest.raises(TypeError, match="expected a dict"):
        guarantee_from_dict(plain)


@pytest.mark.parametrize("mu", [-1.0, float("nan"), float("inf"), 10**400])
def test_numbers_out_of_range_are_refused(mu):
    with pytest.raises(ValueError, match="Got mu="):
        guarantee_from_dict({"kind": "gaussian", "mu": mu})


def test_counts_that_are_left_out_are_not_guessed():
    with pytest.raises(ValueError, match="counts"):
        guarantee_from_dict({"kind": "laplace", "epsilons": [0.1], "counts": []})


def test_a_part_that_is_none_is_refused():
    with pytest.raises(TypeError, match=r"parts\[0\]"):
        guarantee_from_dict({"kind": "composed", "parts": [{"kind": "non_private"}]})


def test_bottomless_nesting_is_refused():
    plain = {"kind": "gaussian", "mu": 1.0}
    for _ in range(500):
        plain = {"kind": "worst", "components": [plain]}
    with pytest.raises(ValueError, match="nested"):
        guarantee_from_dict(plain)
