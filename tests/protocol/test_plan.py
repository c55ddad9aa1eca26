"""The plan compares by value, cannot exceed its budget, and is printed in words."""

import dataclasses
import math
import pickle
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdpadmm import DPAdmmRidge, DPFedRidge, losses, penalties
from skdpadmm.privacy import GaussianDP, Mixture, Neighboring, NonPrivate, gaussian_mu
from skdpadmm.protocol import Budget, Curator, Facts, Plan, Release, Settings, View

MU = gaussian_mu(1.0, 1e-5)
NOISE = 0.01 * math.sqrt(5) / MU
OPEN = Budget(epsilon=math.inf, delta=1e-5)
SETTINGS = Settings((("step_size", 0.123456789), ("record_step", "exact")))


PLAN = Plan(
    algorithm="Example",
    facts=Facts(
        n_samples=100, n_parameters=3, loss=losses.SquaredLoss(), penalty=penalties.L1(0.1),
        neighboring=Neighboring.REPLACE_ONE, row_norm=math.sqrt(3), rounding=1.0, max_iter=5,
    ),
    budget=Budget(epsilon=1.0, delta=1e-5),
    settings=SETTINGS,
    releases=(Release(name="mean", shape=(3, 1), sensitivities=(0.01,) * 5, noise_std=NOISE),),
)  # fmt: skip


def views(guarantee=MU, worst_case=MU, observer="model"):
    kinds = {"guarantees": (GaussianDP(guarantee),), "worst_cases": (GaussianDP(worst_case),)}
    return (View(observer=observer, **kinds),)


PATH = Release(
    name="iterate", shape=(3, 1), sensitivities=(0.01,), noise_std=0.05, repeats=200,
    door="path_noise", views=views(), is_hidden=True,
)  # fmt: skip


def with_facts(**changed):
    return dataclasses.replace(PLAN, facts=dataclasses.replace(PLAN.facts, **changed))


def released(*others, budget=PLAN.budget, **changed):
    one = dataclasses.replace(PLAN.releases[0], **changed)
    return dataclasses.replace(PLAN, releases=(one, *others), budget=budget)


def path_plan(**changed):
    return dataclasses.replace(PLAN, releases=(dataclasses.replace(PATH, **changed),))


CHANGED = [
    *(with_facts(**{name: value}) for name, value in [
        ("n_samples", 101), ("rounding", 1.0 + 1e-9), ("unit", "agent"),
        ("neighboring", Neighboring.ZERO_OUT), ("loss", losses.HuberLoss(1.0)),
        ("loss", losses.HuberLoss(1.5)), ("loss", losses.MultinomialLoss(3)),
        ("penalty", penalties.L1(0.1 + 1e-9)), ("penalty", penalties.ElasticNet(0.1, 0.2)),
        ("penalty", penalties.ElasticNet(0.2, 0.1)),
    ]),
    *(dataclasses.replace(PLAN, **{name: value}) for name, value in [
        ("algorithm", "Other"), ("budget", Budget(epsilon=1.5, delta=1e-5)), ("budget", OPEN),
        ("settings", SETTINGS.but(step_size=0.2)), ("settings", SETTINGS.but(record_step="other")),
    ]),
    *(released(**{name: value}) for name, value in [
        ("name", "other"), ("shape", (1, 3)), ("sensitivities", (0.01,) * 4 + (0.009,)),
        ("noise_std", NOISE * (1 + 1e-9)), ("law", "laplace"), ("agent_noise_std", (1.0,)),
    ]),
    *(path_plan(**{name: value}) for name, value in [
        ("views", views(MU / 2)), ("views", views(MU, 2 * MU)), ("repeats", 201),
        ("repeats", None), ("views", views() + views(observer="all")), ("is_hidden", False),
    ]),
]  # fmt: skip


def test_the_curator_of_a_plan_is_no_part_of_its_digest():
    """So that seeds have the noise that they had before there were agents."""
    assert PLAN.facts.agents == Curator()
    assert PLAN.digest().hex().startswith("abd227760799dc27")


def test_every_field_enters_equality_and_the_digest():
    assert len({plan.digest() for plan in [PLAN, *CHANGED]}) == len(CHANGED) + 1
    for place, plan in enumerate(CHANGED):
        assert plan not in [PLAN, *CHANGED[:place]]
        assert pickle.loads(pickle.dumps(plan)) == plan
    with pytest.raises(dataclasses.FrozenInstanceError):
        PLAN.releases[0].noise_std = 0.0


@given(st.integers(1, 10**9), st.floats(1e-3, 1e3), st.floats(1, 2))
def test_a_digest_tells_plans_apart_up_to_the_last_bits_of_their_floats(n, row_norm, rounding):
    one = with_facts(n_samples=n, row_norm=row_norm, rounding=rounding)
    near = with_facts(n_samples=n, row_norm=row_norm * (1 + 1e-10), rounding=rounding)
    same = with_facts(n_samples=np.int64(n), row_norm=row_norm, rounding=rounding)
    assert [one == other for other in (near, same)] == [False, True]
    assert [one.digest() == other.digest() for other in (near, same)] == [False, True]
    third, next_to_it = (with_facts(row_norm=v).digest() for v in (1 / 3, np.nextafter(1 / 3, 1)))
    assert third == next_to_it  # mathematical libraries may differ in the last bit


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *((lambda part=part: released(noise_std=part * NOISE), "a plan of epsilon=1 with delta=")
          for part in (0.5, 0.999, 1 - 1e-6)),
        (lambda: released(dataclasses.replace(PLAN.releases[0], name="again")), "a plan of eps"),
        (lambda: released(PATH), "a plan of epsilon=1 with delta="),
        (lambda: path_plan(views=views(MU * (1 + 1e-6))), "a plan of epsilon=1 with delta="),
        *((lambda f=f: released(**f), "release .* with (noise_std=.* finite .* Check|sensitiv)")
          for s in (0.0, math.inf, math.nan, -1.0)
          for f in ({"noise_std": s}, {"sensitivities": (0.01, s)})),
        (lambda: path_plan(noise_std=0.0), "release .* with noise_std=0.0"),
        (lambda: path_plan(sensitivities=(math.inf,)), "release .* with sensitivities"),
        # Fail closed: a misspelled observer must not get perfect privacy.
        (lambda: PLAN.guarantee("modle"), "observer='modle'"),
        (lambda: released(budget=Budget(epsilon=1.0, delta=1e-5, observer="modle"), noise_std=1e-6),
         "observer='modle'"),
        *((lambda e=e, d=d: Budget(epsilon=e, delta=d), "(epsilon|delta)=.*, expected a float in")
          for e, d in ((0.0, 0.1), (-1, 0.1), (math.nan, 0.1), (1, -1.0), (1, 1.0), (1, math.nan))),
        *((lambda f=f: with_facts(**f), "(n_samples=0|rounding=0.5|row_norm=)")
          for f in ({"n_samples": 0}, {"rounding": 0.5}, {"row_norm": 0}, {"row_norm": math.nan})),
    ],
)  # fmt: skip
def test_plans_above_their_budget_and_facts_that_are_none_are_refused(make, message):
    with pytest.raises(ValueError, match=f"^Got {message}"):
        make()


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=20), st.floats(1e-6, 1e6))
def test_the_guarantee_is_the_norm_of_the_sensitivities_over_the_noise(sensitivities, noise_std):
    changed = {"sensitivities": tuple(sensitivities), "noise_std": noise_std}
    one = dataclasses.replace(PLAN.releases[0], **changed)
    assert one.times == len(sensitivities)
    assert one.view().guarantees[0].mu == pytest.approx(
        np.linalg.norm(sensitivities) / noise_std, rel=1e-12
    )


def test_releases_share_the_budget_and_each_observer_has_a_guarantee_of_its_own():
    server = dataclasses.replace(PLAN.releases[0], name="again", views=views(observer="server"))
    both = released(server, views=views() + views(observer="server"))
    found = [both.guarantee(observer).mu for observer in ("model", "server")]
    assert found == pytest.approx([MU, math.sqrt(2) * MU], rel=1e-12)
    half = dataclasses.replace(PATH, views=views(MU / math.sqrt(2)))
    assert released(half, noise_std=math.sqrt(2) * NOISE).guarantee().mu == pytest.approx(MU)
    public = released(budget=OPEN, noise_std=0.0, sensitivities=(math.inf,))
    assert public.guarantee() == NonPrivate()
    assert PLAN.budget.is_private > OPEN.is_private


def test_the_guarantee_of_a_path_is_that_of_its_theorem_and_not_of_its_noise():
    # Of each step alone the ratio would be .2, and of 200 of them 2.8.
    average = Mixture((0.5, 0.5), (GaussianDP(MU), GaussianDP(MU / 4)))
    assert path_plan().guarantee() == GaussianDP(MU)
    worst = dataclasses.replace(views()[0], guarantees=(average,))
    assert path_plan(views=(worst,)).guarantee() == average
    assert path_plan(views=(worst,)).worst_cases("model") == (GaussianDP(MU),)


def test_the_text_of_a_plan_shows_budget_guarantee_settings_and_releases():
    assert repr(PLAN).startswith(
        "Plan of Example for 100 records, 3 x 1 parameters\n"
        "  budget: epsilon=1, delta=1e-05, replace_one, unit record\n  guarantee (model): GDP(mu="
    )
    assert "  releases 5 x mean (3, 1): sensitivity 0.01, noise std" in repr(PLAN)
    assert "  settings: step_size=0.1235, record_step=exact\n" in repr(PLAN)
    assert "  releases the last of 200 x iterate (3, 1): sensitivity 0.01" in repr(path_plan())
    assert ", epsilon=1, attack accuracy at most 55.34 %\n" in repr(PLAN)
    root = ElementTree.fromstring(PLAN._repr_html_())
    shown = [": ".join(filter(None, row.itertext())) for row in root.iter("tr")]
    assert [f"  {line}" for line in shown] == repr(PLAN).splitlines()[1:]
    assert "model: epsilon=1" in root.find("svg").itertext()


def test_the_text_of_a_plan_is_silent_about_rounds_where_there_are_no_agents():
    alone, together = (model.plan(1000, 3) for model in (DPAdmmRidge(), DPFedRidge()))
    assert "participation" not in repr(alone)
    assert "participation=1, sampling=poisson" in repr(together)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"views": ()}, r"release .* with views of=\('model',\), expected one of each of "),
        ({"agent_noise_std": (0.0,)}, "release .* with noise_std=0.0"),
    ],
)
def test_a_release_of_agents_has_noise_and_a_view_of_each_observer(changed, message):
    # What prepares the fit has views of its own: without those of the sum they would be all.
    plan = DPFedRidge(conditioning="private", adversary="server").plan(2000, 3)
    last = dataclasses.replace(plan.releases[-1], **changed)
    with pytest.raises(ValueError, match=f"^Got {message}"):
        dataclasses.replace(plan, releases=(*plan.releases[:-1], last))
