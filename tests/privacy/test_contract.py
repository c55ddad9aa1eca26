"""What every guarantee keeps, whatever its kind."""

import importlib
import json
import math
import pkgutil
from functools import cache
from itertools import product

import numpy as np
import pytest

from skdpadmm import privacy
from skdpadmm.privacy import GaussianDP, LaplaceDP, Mixture, NonPrivate, Worst, compose, worst

Composed, Objective, RenyiDP = privacy.Composed, privacy.PerturbedObjectiveDP, privacy.RenyiDP
Sampled = privacy.PoissonSubsampledGaussian
Guarantee, guarantee_from_dict = privacy.Guarantee, privacy.guarantee_from_dict
pytest.importorskip("dp_accounting")

SAMPLED = Sampled(0.1, 20.0 / 3.0, 7, "zero_out")
STEADY, STRONG = GaussianDP(0.3), GaussianDP(1.0)
RARE = Mixture((0.9, 0.1), (GaussianDP(0.0), STRONG))
INNER = Worst((LaplaceDP(1.0), STEADY))
ORDERS = (1.5, 2.0, 4.0, 8.0, 16.0, 32.0)
# Of every kind some guarantees, with the words that the first describes itself by.
EXAMPLES = {
    "not private": [NonPrivate()],
    "GDP(mu=0.2681)": [GaussianDP(np.float64(0.26801)), GaussianDP(1), GaussianDP(0.0)],
    "Laplace(epsilon=0.3334)": [LaplaceDP(1.0 / 3.0), LaplaceDP(0.0)],
    "Poisson(q=0.1) sampled Gaussian(multiplier=6.666), 7 rounds": [
        SAMPLED, Sampled(1, 9.0, np.int64(3), "zero_out")
    ],
    "perturbed objective(L/sigma=0.2346, beta/ridge=0.05) + GDP(mu=0.1)": [
        Objective(0.23451, 0.05, "replace_one", "logistic", 0.75, 0.1),
        Objective(np.float64(0.2), 0.1, "zero_out"),
    ],
    "Renyi DP at 6 orders": [
        RenyiDP(ORDERS, tuple(0.02 * order for order in ORDERS)),
        RenyiDP((1.5, 2.0), (0.1, math.inf)),
    ],
    "Laplace(epsilon=0.2) x 3 + GDP(mu=0.2)": [
        Composed((LaplaceDP(0.2), GaussianDP(0.2)), (3, 1)),
        Composed((SAMPLED, GaussianDP(0.1), LaplaceDP(0.2), RARE), (1, 1, 1, 2)),
    ],
    "mixture of GDP(mu=0), GDP(mu=1)": [
        RARE,
        Mixture((0.5, 0.5), (GaussianDP(0.0), INNER)),
        Mixture((0.1, 0.2, 0.3, 0.4), (GaussianDP(0.1), SAMPLED, GaussianDP(0.3), GaussianDP(1.0))),
    ],
    "worst of 2 guarantees": [Worst((RARE, STEADY)), INNER],
}  # fmt: skip
ALL = [guarantee for examples in EXAMPLES.values() for guarantee in examples]
FIRST = [examples[0] for examples in EXAMPLES.values()]
EPSILONS = (0.0, 0.05, 0.3, 1.0, 4.0)
of_each = pytest.mark.parametrize("guarantee", ALL, ids=lambda guarantee: guarantee.describe())
of_first = pytest.mark.parametrize("guarantee", FIRST, ids=lambda kind: type(kind).__name__)


@cache
def curve(guarantee):
    return np.array([guarantee.delta(epsilon) for epsilon in EPSILONS])


def test_every_kind_of_guarantee_has_an_example_and_describes_itself_unflatteringly():
    for module in pkgutil.iter_modules(privacy.__path__, "skdpadmm.privacy."):
        importlib.import_module(module.name)
    found, new = set(), [Guarantee]
    while new:
        new = [kind for parent in new for kind in parent.__subclasses__()]
        found.update(kind for kind in new if kind.__module__.startswith("skdpadmm.privacy."))
    assert found == set(map(type, FIRST))
    assert [guarantee.describe() for guarantee in FIRST] == list(EXAMPLES)
    assert ALL[-3].describe() == "mixture of 4 guarantees"


@of_each
def test_delta_is_a_probability_that_falls_with_epsilon(guarantee):
    deltas = curve(guarantee)
    assert np.all((deltas >= 0) & (deltas <= 1))
    assert np.all(np.diff(deltas) <= 1e-12)
    assert guarantee.delta(1e300) <= guarantee.delta(1e3) <= deltas[-1] + 1e-12
    assert guarantee.delta(math.inf) == 0.0


@of_each
def test_epsilon_is_the_safe_side_of_the_inverse_of_delta(guarantee):
    found = [guarantee.epsilon(delta) for delta in (0.0, 1e-9, 1e-6, 1e-3, 0.1, 1.0)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == 0.0
    assert found[0] == math.inf or guarantee.delta(found[0]) == 0.0
    for delta, epsilon in zip((1e-9, 1e-6, 1e-3, 0.1), found[1:], strict=False):
        if math.isinf(epsilon):
            assert guarantee.delta(100.0) > delta
            continue
        assert guarantee.delta(epsilon) <= delta * (1 + 1e-9) + 1e-15
        assert epsilon == 0 or guarantee.delta(epsilon * (1 - 2e-3)) > delta


@of_each
def test_what_underflows_is_zero_whatever_numpy_is_told(guarantee):
    with np.errstate(under="raise"):
        assert guarantee.delta(1e3) <= guarantee.delta(30.0) <= guarantee.delta(0.0)


@of_each
def test_questions_out_of_range_are_refused(guarantee):
    for epsilon in (-0.1, math.nan):
        with pytest.raises(ValueError, match="Got epsilon="):
            guarantee.delta(epsilon)
    for delta in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="Got delta="):
            guarantee.epsilon(delta)


@of_each
def test_a_guarantee_survives_json_and_compares_by_value(guarantee):
    text = json.dumps(guarantee.to_dict(), allow_nan=False)
    read = guarantee_from_dict(json.loads(text))
    assert type(read) is type(guarantee)
    assert read == guarantee
    assert hash(read) == hash(guarantee)
    assert read not in [other for other in ALL if other is not guarantee]


@of_first
def test_fields_that_are_missing_unknown_or_of_a_wrong_type_are_refused(guarantee):
    plain = guarantee.to_dict()
    names = set(plain) - {"version", "kind"}
    changed = [{key: plain[key] for key in plain if key != name} for name in names]
    for wrong in [{**plain, "another": 1.0}, *changed]:
        with pytest.raises(ValueError, match="fields"):
            guarantee_from_dict(wrong)
    for name, wrong in product(names, (None, True, {}, "0.1", [["0.1"]], [None], [{"kind": None}])):
        with pytest.raises((TypeError, ValueError), match=r"Got .* expected"):
            guarantee_from_dict({**plain, name: wrong})


def nested(depth):
    return {"kind": "worst", "components": [nested(depth - 1)]} if depth else {"kind": "?"}


COMPOSED = {"kind": "composed", "leaves": [{"kind": "gaussian", "mu": 1.0}], "counts": [1]}


@pytest.mark.parametrize(
    ("plain", "error", "message"),
    [
        ([], TypeError, "expected a dict"),
        *(({"kind": kind, "mu": 1.0}, ValueError, "expected one of") for kind in (None, [], "a")),
        *(({"kind": "gaussian", "mu": mu}, ValueError, "Got mu=") for mu in (math.nan, 10**400)),
        *(({"version": v, **COMPOSED}, ValueError, "version=") for v in (None, 0, 2, "1", [])),
        ({**COMPOSED, "counts": [0]}, ValueError, "counts=0"),
        ({**COMPOSED, "counts": []}, ValueError, "1 leaves and 0 counts"),
        ({**COMPOSED, "leaves": COMPOSED["leaves"] * 2, "counts": [1, 1]}, ValueError, "different"),
        ({**COMPOSED, "leaves": [COMPOSED]}, TypeError, "a leaf Composed"),
        ({**COMPOSED, "leaves": [{"kind": "non_private"}]}, TypeError, "a leaf NonPriv"),
        (nested(500), ValueError, "nested"),
    ],
)  # fmt: skip
def test_dictionaries_that_describe_no_guarantee_are_refused(plain, error, message):
    with pytest.raises(error, match=message):
        guarantee_from_dict({"version": 1, **plain} if isinstance(plain, dict) else plain)


# Composition and the weakest of several ----------------------------------------------------------


def leaf(guarantee):
    return not isinstance(guarantee, Composed | NonPrivate)


# Curves of some kinds take seconds; in the quick suite Gaussians are composed with each of them.
@pytest.mark.parametrize(
    "guarantee",
    [pytest.param(kind, marks=[pytest.mark.slow] * (type(kind) in (Objective, LaplaceDP)))
     for kind in FIRST],
    ids=lambda kind: type(kind).__name__,
)  # fmt: skip
def test_composition_is_symmetric_above_its_parts_and_below_basic_composition(guarantee):
    for other in FIRST[FIRST.index(guarantee) :]:
        if len(guarantee.relations() | other.relations()) > 1:
            continue
        pair, together = (guarantee, other), compose(guarantee, other)
        deltas = curve(together)
        np.testing.assert_allclose(curve(compose(other, guarantee)), deltas, 1e-6, 1e-11)
        # Of a bound that is not convex, composition takes the convex hull.
        least = [curve(Composed((part,), (1,))) if leaf(part) else curve(part) for part in pair]
        assert np.all(np.maximum(*least) <= deltas * (1 + 1e-4) + 1e-11)
        if RenyiDP not in (type(guarantee), type(other)):  # its conversion loses more than that
            for first in (0.0, 0.3):
                basic = guarantee.delta(first) + other.delta(0.7)
                assert together.delta(first + 0.7) <= 1.01 * basic + 1e-8


@of_each
def test_composition_with_nothing_and_with_no_guarantee_at_all(guarantee):
    assert compose(guarantee) is guarantee
    assert compose(guarantee, NonPrivate()) == compose(NonPrivate(), guarantee) == NonPrivate()
    free = compose(guarantee, GaussianDP(0.0))
    np.testing.assert_allclose(curve(free), curve(guarantee), rtol=1e-9, atol=1e-13)


def test_foreign_guarantees_and_two_relations_do_not_compose():
    assert compose() == GaussianDP(0.0)
    for others in ((), (GaussianDP(1.0),), (NonPrivate(),)):
        with pytest.raises(TypeError, match=r"Got 0\.5, expected a Guarantee"):
            compose(0.5, *others)
    replaced = Sampled(0.1, 20.0, 100, "replace_one")
    for other in (SAMPLED, Mixture((0.5, 0.5), (SAMPLED, STEADY)), Objective(0.2, 0.1, "zero_out")):
        with pytest.raises(TypeError, match="two neighbouring relations"):
            compose(other, replaced)


@of_each
def test_what_dominates_is_nowhere_below_and_the_worst_is_the_largest(guarantee):
    own = curve(guarantee)
    assert guarantee.dominates(guarantee)
    for other in ALL:
        deltas = curve(other)
        assert other == guarantee or not (other.dominates(guarantee) and guarantee.dominates(other))
        assert not guarantee.dominates(other) or np.all(own >= deltas * (1 - 1e-9) - 1e-14)
        largest = np.maximum(own, deltas)
        np.testing.assert_allclose(curve(worst(guarantee, other)), largest, 1e-9, 1e-14)


STEPS = compose(*[LaplaceDP(0.3)] * 2, *[LaplaceDP(0.1)] * 5)
RARER = Mixture((0.8, 0.2), RARE.components)
OFTEN, BOTH = Mixture((0.9, 0.1), (STEADY, STRONG)), compose(SAMPLED, GaussianDP(0.2))


@pytest.mark.parametrize(
    ("larger", "smaller", "unclear"),
    [
        (STEPS, [Composed((LaplaceDP(0.2), LaplaceDP(0.1)), (2, 5))], [LaplaceDP(0.31)]),
        (LaplaceDP(0.3), [LaplaceDP(0.2), LaplaceDP(0.0)], [STEPS, GaussianDP(0.1)]),
        (SAMPLED, [Sampled(0.1, 8.0, 7, "zero_out")], [Sampled(0.1, 8.0, 7, "replace_one")]),
        (OFTEN, [RARE], [RARER]),
        (BOTH, [compose(SAMPLED, GaussianDP(0.1))], [Composed((SAMPLED,), (1,))]),
    ],
)
def test_dominance_is_seen_where_it_is_plain(larger, smaller, unclear):
    for other in smaller:
        assert larger.dominates(other)
        assert worst(other, larger) == worst(larger, other) == larger
    assert not any(larger.dominates(other) for other in unclear)
    assert not any(other.dominates(larger) for other in [*smaller, *unclear])
