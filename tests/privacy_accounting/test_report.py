"""The report says who sees what, and never a number below the truth."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skdpadmm.privacy
from skdpadmm.privacy import (
    GaussianDP,
    Mixture,
    Neighboring,
    NonPrivate,
    Observer,
    PrivacyReport,
    ReleaseLine,
)
from skdpadmm.privacy._formatting import round_down, round_up


def make_report(**changes):
    parts = {
        "subject": "DPAdmmLasso",
        "observers": (
            Observer("model", "the model", "record", Neighboring.REPLACE_ONE, GaussianDP(0.2681)),
            Observer("server", "<sums> & more", "record", Neighboring.ZERO_OUT, NonPrivate()),
        ),
        "releases": (ReleaseLine("mean", 10, (3,), 0.123456, 0.123456),),
        "delta": 1e-5,
        "assumptions": ("the noise is honest",),
        "not_covered": ("timing",),
        "simulation": "",
    }
    return PrivacyReport(**(parts | changes))


@given(st.floats(min_value=0, max_value=1e300))
def test_printed_numbers_bound_the_float_from_their_side(value):
    up, down = float(round_up(value)), float(round_down(value))
    assert down <= value <= up
    assert up <= value * (1 + 1.001e-3) or value < 1e-300


def test_short_decimals_stay_short():
    assert [round_up(x) for x in (0.2, 1e-6, 1.0, 0.0, 12345.6)] == [
        "0.2",
        "1e-06",
        "1",
        "0",
        "1.235e+04",
    ]
    assert round_up(0.123401) == "0.1235"
    assert round_down(0.123499) == "0.1234"
    assert round_up(math.inf) == "inf"


def test_text_says_who_sees_what():
    text = repr(make_report())
    header, model, server = text.splitlines()[2:5]
    assert header.split() == "observer sees unit neighbors (epsilon, delta) guarantee".split()
    epsilon = GaussianDP(0.2681).epsilon(1e-5)
    assert f"({round_up(epsilon)}, 1e-05)" in model
    assert "GDP(mu=0.2681)" in model
    assert "replace one" in model
    assert "not private" in server
    assert "mean     10     (3,)   0.1235       0.1234" in text
    assert "Assumes:\n- the noise is honest" in text
    assert "Does not cover:\n- timing" in text
    assert "SIMULATION" not in text


def test_a_simulation_says_so_on_a_line_of_its_own():
    report = make_report(simulation="random_state is an int.")
    assert "SIMULATION: random_state is an int." in repr(report).splitlines()
    assert "SIMULATION:" in report._repr_html_()


def test_an_epsilon_that_is_never_reached_reads_not_private():
    floor = Mixture((0.5, 0.5), (GaussianDP(0.1), NonPrivate()))
    observer = Observer("model", "all", "record", Neighboring.ZERO_OUT, floor)
    assert "not private" in repr(make_report(observers=(observer,)))


def test_lookup_by_observer_and_delta():
    report = make_report()
    assert report.guarantee() == GaussianDP(0.2681)
    assert report.epsilon() == GaussianDP(0.2681).epsilon(1e-5)
    assert report.epsilon(delta=1e-3) < report.epsilon()
    assert report.epsilon("server") == math.inf
    with pytest.raises(ValueError, match=r"Got observer='peer', expected one of \['model', 'serv"):
        report.epsilon("peer")


def test_two_observers_of_one_name_are_refused():
    observer = make_report().observers[0]
    with pytest.raises(ValueError, match="expected distinct names"):
        make_report(observers=(observer, observer))


@pytest.mark.parametrize("delta", [-1e-6, 1.1, math.nan])
def test_a_delta_that_is_no_probability_is_refused(delta):
    with pytest.raises(ValueError, match="Got delta"):
        make_report(delta=delta)


def test_html_is_escaped_and_balanced():
    class Balance(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open, self.seen = [], set()

        def handle_starttag(self, tag, attrs):
            self.open.append(tag)
            self.seen.add(tag)
            assert not [name for name, _ in attrs if name == "style" or name.startswith("on")]

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    html = make_report(subject="<script>", simulation="a < b")._repr_html_()
    parser = Balance()
    parser.feed(html)
    assert not parser.open
    assert {"section", "table", "th", "td"} <= parser.seen
    assert "script" not in parser.seen
    assert "&lt;sums&gt; &amp; more" in html


def test_dictionary_is_strict_json():
    dictionary = make_report().to_dict()
    assert json.loads(json.dumps(dictionary, allow_nan=False)) == dictionary
    model, server = dictionary["observers"]
    assert model["epsilon"] == GaussianDP(0.2681).epsilon(1e-5)
    assert float(server["epsilon"]) == math.inf
    assert dictionary["releases"][0]["shape"] == [3]


def test_a_report_is_a_value():
    assert make_report() == make_report() == pickle.loads(pickle.dumps(make_report()))


def make_observer(**changes):
    parts = {"name": "server", "sees": "sums", "unit": "agent", "guarantee": GaussianDP(0.3)}
    return Observer(**(parts | {"neighboring": Neighboring.ZERO_OUT} | changes))


def agents_of_three_kinds():
    rare = Mixture((0.5, 0.5), (GaussianDP(0.0), GaussianDP(0.3)))
    return (GaussianDP(0.3), rare, rare, GaussianDP(0.1))


def test_the_worst_realisation_stands_below_the_average():
    average = Mixture((0.9, 0.1), (GaussianDP(0.1), GaussianDP(1.0)))
    observer = make_observer(guarantee=average, always=GaussianDP(1.0))
    report = make_report(observers=(observer,), delta=1e-6)
    first, second = repr(report).splitlines()[3:5]
    assert first.startswith("server ")
    assert f"({round_up(average.epsilon(1e-6))}, 1e-06)" in first
    assert second.startswith("server, at worst  sums  agent  zero out")
    assert f"({round_up(GaussianDP(1.0).epsilon(1e-6))}, 1e-06)" in second
    assert "<td>server, at worst</td>" in report._repr_html_()
    assert report.epsilon("server") == average.epsilon(1e-6)
    assert report.to_dict()["observers"][0]["always"] == {
        "epsilon": GaussianDP(1.0).epsilon(1e-6),
        "guarantee": {"kind": "gaussian", "mu": 1.0},
    }


def test_agents_that_differ_are_summed_up_in_a_line():
    agents = agents_of_three_kinds()
    report = make_report(observers=(make_observer(per_agent=agents),), delta=1e-6)
    low, middle, high = (round_up(agents[i].epsilon(1e-6)) for i in (3, 1, 0))
    line = f"server: epsilon per agent from {low} to {high}, median {middle}"
    assert line in repr(report).splitlines()
    assert line in report._repr_html_()
    assert f"({high}, 1e-06)" in repr(report)


def test_epsilon_per_agent_keeps_the_order_of_agents():
    agents = agents_of_three_kinds()
    report = make_report(observers=(make_observer(per_agent=list(agents)),), delta=1e-6)
    epsilons = report.epsilon_per_agent("server")
    assert epsilons.shape == (4,)
    assert epsilons.tolist() == [agent.epsilon(1e-6) for agent in agents]
    assert epsilons.max() == report.epsilon("server")
    looser = report.epsilon_per_agent("server", delta=1e-3)
    assert (looser < epsilons).all()
    assert report.to_dict()["observers"][0]["epsilon_per_agent"] == epsilons.tolist()


def test_epsilon_of_an_agent_goes_by_its_label():
    agents = agents_of_three_kinds()
    observers = (make_observer(per_agent=list(agents)),)
    labels = ("west", "east", "north", "south")
    report = make_report(observers=observers, agent_labels=labels)
    for place, label in enumerate(labels):
        assert report.epsilon_of(label, "server") == report.epsilon_per_agent("server")[place]
        looser = report.epsilon_of(label, delta=1e-3)
        assert looser == report.epsilon_per_agent("server", 1e-3)[place]
    with pytest.raises(ValueError, match=r"Got agent='centre', expected one of \['west'"):
        report.epsilon_of("centre")
    with pytest.raises(ValueError, match="Got observer='peer'"):
        report.epsilon_of("west", "peer")
    # Without labels agents are called by their places.
    assert make_report(observers=observers).epsilon_of(2) == report.epsilon_of("north")


def test_agents_with_figures_of_their_own_are_listed_where_they_are_few():
    kinds = (GaussianDP(0.1), GaussianDP(0.3))
    for n_agents in (2, 10, 11):
        agents = tuple(kinds[agent % 2] for agent in range(n_agents))
        labels = tuple(f"<agent {agent}>" for agent in range(n_agents))
        report = make_report(
            observers=(make_observer(guarantee=kinds[1], per_agent=agents),), agent_labels=labels
        )
        lines = [line.split("  ") for line in repr(report).splitlines()]
        listed = [line[-1] for line in lines if line[0] in labels]
        expected = [round_up(epsilon) for epsilon in report.epsilon_per_agent().tolist()]
        assert listed == (expected if n_agents <= 10 else [])
        assert ("&lt;agent 1&gt;" in report._repr_html_()) == (n_agents <= 10)
    alike = make_report(
        observers=(make_observer(guarantee=kinds[0], per_agent=(kinds[0],) * 3),),
        agent_labels=("a", "b", "c"),
    )
    assert "agent  epsilon" not in repr(alike)


def test_where_nothing_tells_agents_apart_each_has_the_figure_of_all():
    labels = ("a", "b")
    report = make_report(observers=(make_observer(guarantee=NonPrivate()),), agent_labels=labels)
    assert report.epsilon_per_agent("server").tolist() == [math.inf] * 2
    assert report.epsilon_of("b") == math.inf
    assert report.to_dict()["observers"][0]["epsilon_per_agent"] == ["inf"] * 2


def test_epsilon_of_many_agents_is_computed_once_for_each_distinct_guarantee():
    asked = []

    class Counting(GaussianDP):
        def epsilon(self, delta):
            asked.append(self.mu)
            return super().epsilon(delta)

    shared = Counting(0.3)
    agents = (shared,) * 5_000 + tuple(Counting(0.1) for _ in range(5_000))
    report = make_report(observers=(make_observer(per_agent=agents),))
    assert report.epsilon_per_agent("server").shape == (10_000,)
    assert sorted(asked) == [0.1, 0.3]


@pytest.mark.parametrize(
    ("agents", "text"),
    [
        ((GaussianDP(0.0), NonPrivate(), NonPrivate()), "from 0 to inf, median inf"),
        ((GaussianDP(0.0), NonPrivate()), "from 0 to inf, median inf"),
        ((GaussianDP(0.0),) * 3 + (NonPrivate(),), "from 0 to inf, median 0"),
    ],
)
def test_agents_without_a_guarantee_are_counted_in_the_range(agents, text):
    report = make_report(observers=(make_observer(guarantee=NonPrivate(), per_agent=agents),))
    assert text in repr(report)
    dictionary = report.to_dict()
    assert json.loads(json.dumps(dictionary, allow_nan=False)) == dictionary


def test_without_agents_there_is_no_figure_per_agent():
    report = make_report(observers=(make_observer(),))
    with pytest.raises(
        ValueError, match=r"expected one that knows of agents.* use epsilon\('server'\)"
    ):
        report.epsilon_per_agent("server")
    with pytest.raises(ValueError, match=r"Got observer='peer', expected one of \['server'\]"):
        report.epsilon_per_agent("peer")
    observer = report.to_dict()["observers"][0]
    assert observer["always"] is None
    assert observer["epsilon_per_agent"] == []
    assert "per agent" not in repr(report)
    assert "always" not in repr(report)


def test_importing_the_room_stays_cheap():
    """Neither dp-accounting nor scipy.stats, which take longer than the room itself."""
    root = Path(skdpadmm.privacy.__file__).parents[1]
    program = (
        "import sys, types\n"
        "parent = types.ModuleType('skdpadmm')\n"
        f"parent.__path__ = [{str(root)!r}]\n"
        "sys.modules['skdpadmm'] = parent\n"
        "import skdpadmm.privacy\n"
        "print(sorted({'dp_accounting', 'scipy.stats', 'sklearn'} & set(sys.modules)))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


def test_a_missing_extra_is_named(monkeypatch):
    from skdpadmm.privacy import PoissonSubsampledGaussian, RenyiDP, _pld

    for name in ("dp_accounting", "dp_accounting.pld", "dp_accounting.rdp"):
        monkeypatch.setitem(sys.modules, name, None)
    _pld._composed.cache_clear()
    for guarantee in (
        PoissonSubsampledGaussian(0.5, 3.0, 2, "zero_out"),
        RenyiDP((2.0,), (1.0,)),
    ):
        with pytest.raises(ImportError, match=r"needs dp-accounting: pip install 'skdpadmm\[acc"):
            guarantee.epsilon(1e-6)


def test_equal_figures_of_agents_are_listed_and_not_printed():
    report = make_report(observers=(make_observer(per_agent=(GaussianDP(0.5),) * 3),))
    epsilons = report.epsilon_per_agent("server")
    assert epsilons.tolist() == [GaussianDP(0.5).epsilon(report.delta)] * 3
    assert "per agent" not in repr(report)


def test_the_worst_case_is_the_guarantee_where_nothing_is_averaged():
    report = make_report(observers=(make_observer(always=GaussianDP(2.0)),))
    assert report.worst_case() == GaussianDP(2.0)
    report = make_report(observers=(make_observer(),))
    assert report.worst_case() == report.guarantee()
