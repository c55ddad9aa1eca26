"""The plan: compares by value, cannot cost more than its budget, and speaks for itself."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdpadmm.losses import HuberLoss, LogisticLoss, MultinomialLoss, SquaredLoss
from skdpadmm.penalties import L1, ElasticNet, NoPenalty, SquaredL2
from skdpadmm.privacy import GaussianDP, Mixture, Neighboring, NonPrivate, gaussian_mu
from skdpadmm.protocol import Budget, Facts, NoisyPath, Plan, Release

MU = gaussian_mu(1.0, 1e-5)


@dataclasses.dataclass(frozen=True)
class Settings:
    step_size: float = 0.123456789
    record_step: str = "exact"


def facts(**changed):
    arguments = {
        "n_samples": 100,
        "n_parameters": 3,
        "loss": SquaredLoss(),
        "penalty": L1(0.1),
        "neighboring": Neighboring.REPLACE_ONE,
        "row_norm": math.sqrt(3),
        "rounding": 1.0,
        "max_iter": 5,
    }
    return Facts(**(arguments | changed))


def release(**changed):
    arguments = {
        "name": "mean",
        "shape": (3, 1),
        "sensitivities": (0.01,) * 5,
        "noise_std": 0.01 * math.sqrt(5) / MU,
    }
    return Release(**(arguments | changed))


def plan(**changed):
    arguments = {
        "algorithm": "Example",
        "facts": facts(),
        "budget": Budget(epsilon=1.0, delta=1e-5),
        "settings": Settings(),
        "releases": (release(),),
    }
    return Plan(**(arguments | changed))


NOISE = 0.01 * math.sqrt(5) / MU
CHANGES = {
    "algorithm": {"algorithm": "Other"},
    "n_samples": {"facts": facts(n_samples=101)},
    "n_parameters": {"facts": facts(n_parameters=4)},
    "loss": {"facts": facts(loss=LogisticLoss())},
    "parameter of the loss": {"facts": facts(loss=HuberLoss(1.0))},
    "another parameter of the loss": {"facts": facts(loss=HuberLoss(1.5))},
    "classes": {"facts": facts(loss=MultinomialLoss(3))},
    "more classes": {"facts": facts(loss=MultinomialLoss(4))},
    "penalty": {"facts": facts(penalty=L1(0.1 + 1e-9))},
    "kind of penalty": {"facts": facts(penalty=SquaredL2(0.1))},
    "elastic net": {"facts": facts(penalty=ElasticNet(0.1, 0.2))},
    "elastic net, exchanged": {"facts": facts(penalty=ElasticNet(0.2, 0.1))},
    "no penalty": {"facts": facts(penalty=NoPenalty())},
    "neighboring": {"facts": facts(neighboring=Neighboring.ZERO_OUT)},
    "row_norm": {"facts": facts(row_norm=2.0)},
    "rounding": {"facts": facts(rounding=1.0 + 1e-9)},
    "max_iter": {"facts": facts(max_iter=6)},
    "unit": {"facts": facts(unit="agent")},
    "epsilon": {"budget": Budget(epsilon=1.5, delta=1e-5)},
    "infinite epsilon": {"budget": Budget(epsilon=math.inf, delta=1e-5)},
    "delta": {"budget": Budget(epsilon=1.0, delta=2e-5)},
    "settings": {"settings": Settings(step_size=0.2)},
    "a string in settings": {"settings": Settings(record_step="linearized")},
    "name of a release": {"releases": (release(name="other"),)},
    "shape": {"releases": (release(shape=(1, 3)),)},
    "sensitivities": {"releases": (release(sensitivities=(0.01,) * 4 + (0.009,)),)},
    "times": {"releases": (release(sensitivities=(0.01,) * 4),)},
    "noise": {"releases": (release(noise_std=NOISE * (1 + 1e-9)),)},
    "observers": {"releases": (release(seen_by=("model", "server")),)},
}


def test_equal_plans_are_equal_and_have_equal_digests():
    assert plan() == plan()
    assert plan() is not plan()
    assert plan().digest() == plan().digest()
    assert pickle.loads(pickle.dumps(plan())) == plan()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_field_enters_equality_and_the_digest(change):
    assert plan(**change) != plan()
    assert plan(**change).digest() != plan().digest()


def test_all_digests_differ_from_each_other():
    digests = {plan(**change).digest() for change in CHANGES.values()}
    assert len(digests) == len(CHANGES)


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 10**9), row_norm=st.floats(1e-3, 1e3), rounding=st.floats(1, 2))
def test_a_digest_tells_plans_apart_up_to_the_last_bits_of_their_floats(n, row_norm, rounding):
    one = plan(facts=facts(n_samples=n, row_norm=row_norm, rounding=rounding))
    two = plan(facts=facts(n_samples=n, row_norm=row_norm * (1 + 1e-10), rounding=rounding))
    assert one != two
    assert one.digest() != two.digest()


def test_a_digest_is_the_same_where_mathematical_libraries_differ_in_the_last_bit():
    one, two = (plan(facts=facts(row_norm=value)) for value in (1 / 3, np.nextafter(1 / 3, 1)))
    assert one != two
    assert one.digest() == two.digest()


@pytest.mark.parametrize("integer", [np.int32, np.int64, np.intp])
def test_integers_of_numpy_count_as_integers(integer):
    changed = facts(n_samples=integer(100), n_parameters=integer(3), max_iter=integer(5))
    assert plan(facts=changed) == plan()
    assert plan(facts=changed).digest() == plan().digest()


def test_a_plan_is_frozen_and_in_plain_types():
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan().releases = ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan().releases[0].noise_std = 0.0
    plain = plan().to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["facts"]["loss"]["type"] == "SquaredLoss"
    assert plain["releases"][0]["shape"] == [3, 1]


@pytest.mark.parametrize("share", [0.5, 0.9, 0.999, 1 - 1e-6])
def test_a_plan_above_its_budget_cannot_be_made(share):
    with pytest.raises(
        ValueError, match=r"^Got a plan with delta=.* at epsilon=1, expected at most"
    ):
        plan(releases=(release(noise_std=share * NOISE),))


def test_several_releases_share_the_budget():
    with pytest.raises(ValueError, match="Got a plan with delta="):
        plan(releases=(release(), release(name="again")))
    both = release(noise_std=math.sqrt(2) * NOISE)
    two = plan(releases=(both, dataclasses.replace(both, name="again")))
    assert two.guarantee().delta(1.0) == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.parametrize("noise_std", [0.0, math.inf, math.nan, -1.0])
def test_a_private_plan_needs_positive_finite_noise(noise_std):
    with pytest.raises(ValueError, match=r"^Got noise_std=.* expected a positive finite .* Check"):
        plan(releases=(release(noise_std=noise_std),))


@pytest.mark.parametrize("sensitivity", [0.0, math.inf, math.nan, -1.0])
def test_a_private_plan_needs_positive_finite_sensitivities(sensitivity):
    with pytest.raises(ValueError, match=r"^Got sensitivities .* expected a bound for each"):
        plan(releases=(release(sensitivities=(0.01, sensitivity)),))


def test_a_plan_without_a_budget_may_release_without_noise():
    open_plan = plan(
        budget=Budget(epsilon=math.inf, delta=1e-5),
        releases=(release(noise_std=0.0, sensitivities=(math.inf,)),),
    )
    assert open_plan.guarantee() == NonPrivate()
    assert "no noise" in repr(open_plan)


def test_the_guarantee_of_a_release_composes_its_repetitions():
    one = release(sensitivities=(3.0, 4.0), noise_std=10.0)
    assert one.times == 2
    assert one.guarantee == GaussianDP(0.5)
    assert release(noise_std=0.0).guarantee == NonPrivate()


@settings(max_examples=100, deadline=None)
@given(
    sensitivities=st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=20),
    noise_std=st.floats(1e-6, 1e6),
)
def test_the_guarantee_is_the_norm_of_the_sensitivities_over_the_noise(sensitivities, noise_std):
    one = release(sensitivities=tuple(sensitivities), noise_std=noise_std)
    assert one.guarantee.mu == pytest.approx(np.linalg.norm(sensitivities) / noise_std, rel=1e-12)


def test_an_observer_gets_the_composition_of_what_it_sees():
    both = release(sensitivities=(1.0,), noise_std=100.0, seen_by=("model", "server"))
    extra = release(name="extra", sensitivities=(1.0,), noise_std=50.0, seen_by=("server",))
    seen = plan(releases=(both, extra))
    assert seen.guarantee("model").mu == pytest.approx(0.01)
    assert seen.guarantee("server").mu == pytest.approx(math.hypot(0.01, 0.02))


# Paths of noisy iterates, whose figure is a theorem's.


def noisy_path(**changed):
    arguments = {
        "name": "iterate",
        "shape": (3, 1),
        "sensitivity": 0.01,
        "noise_std": 0.05,
        "guarantee": GaussianDP(MU),
        "worst_case": GaussianDP(MU),
        "times": 200,
    }
    return NoisyPath(**(arguments | changed))


def path_plan(**changed):
    return plan(releases=(noisy_path(**changed),))


CHANGES_OF_A_PATH = {
    "name": {"name": "gradient"},
    "shape": {"shape": (1, 3)},
    "sensitivity": {"sensitivity": 0.009},
    "noise": {"noise_std": 0.05 * (1 + 1e-9)},
    "guarantee": {"guarantee": GaussianDP(MU / 2)},
    "worst case": {"worst_case": GaussianDP(2 * MU)},
    "steps": {"times": 201},
    "no end": {"times": None},
    "observers": {"seen_by": ("model", "server")},
    "what is seen": {"is_hidden": False},
}


def test_every_field_of_a_path_enters_equality_and_the_digest():
    assert path_plan() == path_plan()
    assert path_plan().digest() == path_plan().digest()
    plans = [path_plan(), *(path_plan(**change) for change in CHANGES_OF_A_PATH.values())]
    assert all(changed != path_plan() for changed in plans[1:])
    assert len({changed.digest() for changed in plans}) == len(plans)
    assert {field.name for field in dataclasses.fields(NoisyPath)} == {
        name for change in CHANGES_OF_A_PATH.values() for name in change
    }


def test_a_path_is_worth_what_its_theorem_says_and_not_its_noise():
    # Of each step alone the ratio would be .2, and of 200 of them 2.8.
    assert path_plan().guarantee() == GaussianDP(MU)
    average = Mixture((0.5, 0.5), (GaussianDP(MU), GaussianDP(MU / 4)))
    one = path_plan(guarantee=average)
    assert one.guarantee() == average
    assert one.worst_cases("model") == (GaussianDP(MU),)
    assert pickle.loads(pickle.dumps(one)) == one
    assert json.loads(json.dumps(one.to_dict())) == one.to_dict()
    assert noisy_path().sensitivities == (0.01,)


def test_a_path_shares_the_budget_and_cannot_exceed_it():
    with pytest.raises(ValueError, match=r"^Got a plan with delta=.* at epsilon=1, expected at mo"):
        path_plan(guarantee=GaussianDP(MU * (1 + 1e-6)))
    with pytest.raises(ValueError, match="Got a plan with delta="):
        plan(releases=(release(), noisy_path()))
    half = GaussianDP(MU / math.sqrt(2))
    both = plan(
        releases=(release(noise_std=math.sqrt(2) * NOISE), noisy_path(guarantee=half)),
    )
    assert both.guarantee().mu == pytest.approx(MU, rel=1e-12)


@pytest.mark.parametrize("change", [{"noise_std": 0.0}, {"sensitivity": math.inf}], ids=str)
def test_a_private_path_needs_noise_and_a_bound(change):
    with pytest.raises(ValueError, match=r"^Got (noise_std=0\.0|sensitivities) .*expected"):
        path_plan(**change)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, "releases the last of 200 x iterate (3, 1): sensitivity 0.01, noise std 0.05"),
        ({"is_hidden": False}, "releases 200 x iterate (3, 1): sensitivity 0.01, noise std"),
        ({"is_hidden": False, "times": None}, "releases one for each record: x iterate (3, 1)"),
    ],
    ids=["end", "path", "stream"],
)
def test_the_text_of_a_plan_says_how_much_of_a_path_is_seen(change, text):
    assert f"  {text}" in repr(path_plan(**change))


def test_an_observer_that_no_release_names_is_refused():
    # Fail closed: a misspelled observer must not get perfect privacy.
    with pytest.raises(ValueError, match="Got observer='modle'"):
        plan().guarantee("modle")


def test_a_budget_against_an_observer_that_sees_nothing_is_refused():
    with pytest.raises(ValueError, match="observer"):
        plan(
            budget=Budget(epsilon=1.0, delta=1e-5, observer="modle"),
            releases=(release(noise_std=1e-6),),
        )


def test_the_text_of_a_plan_says_what_matters():
    text = repr(plan())
    for part in (
        "Plan of Example for 100 records, 3 x 1 parameters",
        "budget: epsilon=1, delta=1e-05, replace_one, unit record",
        "guarantee (model): GDP(mu=",
        "step_size=0.1235, record_step=exact",
        "releases 5 x mean (3, 1): sensitivity 0.01, noise std",
    ):
        assert part in text
    assert len(text.splitlines()) == 5


def test_a_budget_knows_whether_it_is_private():
    assert Budget(epsilon=1e300, delta=1e-5).is_private
    assert not Budget(epsilon=math.inf, delta=1e-5).is_private
    assert Budget(epsilon=1.0, delta=0.1) == Budget(epsilon=1.0, delta=0.1, observer="model")


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, -math.inf])
def test_a_budget_without_a_positive_epsilon_is_refused(epsilon):
    with pytest.raises(ValueError, match=r"^Got epsilon=.*, expected a float in \(0, inf\]\.$"):
        Budget(epsilon=epsilon, delta=1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 2.0, math.nan, math.inf])
def test_a_budget_with_a_delta_outside_0_and_1_is_refused(delta):
    with pytest.raises(ValueError, match=r"^Got delta=.*, expected a float in \(0, 1\)\. Choose"):
        Budget(epsilon=1.0, delta=delta)
