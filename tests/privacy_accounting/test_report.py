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

from skdpadmm import privacy
from skdpadmm.privacy import GaussianDP, Mixture, Neighboring, NonPrivate, Observer, PrivacyReport
from skdpadmm.privacy import round_down, round_up

RARE = Mixture((0.5, 0.5), (GaussianDP(0.0), GaussianDP(0.3)))
AGENTS = (GaussianDP(0.3), RARE, RARE, GaussianDP(0.1))


def observer(name="server", guarantee=GaussianDP(0.3), **changes):
    return Observer(name, "<sums> & more", "agent", Neighboring.ZERO_OUT, guarantee, **changes)


def report_of(*observers, **changes):
    model = Observer("model", "all", "record", Neighboring.REPLACE_ONE, GaussianDP(0.2681))
    line = privacy.ReleaseLine("mean", 10, (3,), 0.123456, 0.123456)
    parts = {"subject": "DPAdmmLasso", "releases": (line,), "delta": 1e-5, "simulation": ""}
    parts |= {"assumptions": ("the noise is honest",), "not_covered": ("timing",)}
    return PrivacyReport(
        **(parts | {"observers": observers or (model, observer(guarantee=NonPrivate()))} | changes)
    )


@given(st.floats(min_value=0, max_value=1e300))
def test_printed_numbers_bound_the_float_from_their_side(value):
    up, down = float(round_up(value)), float(round_down(value))
    assert down <= value <= up
    assert up <= value * (1 + 1.001e-3) or value < 1e-300


def test_short_decimals_stay_short():
    values = (0.2, 1e-6, 1.0, 0.0, 12345.6, 0.123401, math.inf)
    expected = ["0.2", "1e-06", "1", "0", "1.235e+04", "0.1235", "inf"]
    assert [round_up(value) for value in values] == expected
    assert round_down(0.123499) == "0.1234"


def test_text_says_who_sees_what():
    report = report_of(simulation="random_state is an int.")
    text = repr(report)
    lines = text.splitlines()
    columns = "observer  sees           unit    neighbors    (epsilon, delta)"
    assert any(line.startswith(columns) for line in lines)
    model, server = (next(x for x in lines if x.startswith(n)) for n in ("model ", "server "))
    assert f"({round_up(GaussianDP(0.2681).epsilon(1e-5))}, 1e-05)" in model
    assert "replace one" in model
    assert "GDP(mu=0.2681)" in model
    assert "not private" in server
    assert "mean     10     (3,)   0.1235       0.1234" in text
    assert "Assumes:\n- the noise is honest" in text
    assert "Does not cover:\n- timing" in text
    assert "SIMULATION: random_state is an int." in lines
    assert "SIMULATION" not in repr(report_of())
    floor = Mixture((0.5, 0.5), (GaussianDP(0.1), NonPrivate()))
    assert "not private" in repr(report_of(observer(guarantee=floor)))


def test_lookup_by_observer_and_delta():
    report = report_of()
    assert report.guarantee() == report.worst_case() == GaussianDP(0.2681)
    assert report.epsilon() == GaussianDP(0.2681).epsilon(1e-5) > report.epsilon(delta=1e-3)
    assert report.epsilon("server") == math.inf
    assert report_of(*report.observers, adversary="server").epsilon() == math.inf
    assert report == report_of() == pickle.loads(pickle.dumps(report))
    for call, message in (
        (lambda: report.epsilon("peer"), r"Got observer='peer', expected one of \['model', 'ser"),
        (lambda: report.epsilon_per_agent("server"), r"knows of agents.* use epsilon\('server'\)"),
        (lambda: report_of(observer(), observer()), "expected distinct names"),
        (lambda: report_of(adversary="peer"), "Got adversary='peer'"),
        *((lambda delta=delta: report_of(delta=delta), "Got delta") for delta in (-1e-6, math.nan)),
    ):
        with pytest.raises(ValueError, match=message):
            call()


class Tags(HTMLParser):
    """Opens and closes, and no styles or scripts."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.add(tag)
        assert not [name for name, _ in attrs if name == "style" or name.startswith("on")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_html_is_escaped_and_balanced():
    shown = observer(always=GaussianDP(1.0), per_agent=AGENTS)
    labels, html = ("<agent>", "b", "c", "d"), Tags()
    text = report_of(
        shown, subject="<script>", simulation="a < b", agent_labels=labels
    )._repr_html_()
    html.feed(text)
    assert not html.open
    assert {"section", "table", "th", "td"} <= html.seen
    assert "script" not in html.seen
    for part in (
        "&lt;sums&gt; &amp; more",
        "a &lt; b",
        "&lt;agent&gt;",
        "<td>server, at worst</td>",
    ):
        assert part in text


def test_dictionary_is_strict_json():
    shown = observer(always=GaussianDP(1.0), per_agent=(*AGENTS, NonPrivate()))
    unseen = (("record 3", GaussianDP(0.2)),)
    report = report_of(*report_of().observers[:1], shown, if_unseen=unseen)
    plain = report.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    model, server = plain["observers"]
    assert model["epsilon"] == GaussianDP(0.2681).epsilon(1e-5)
    assert (model["always"], model["epsilon_per_agent"]) == (None, [])
    assert server["always"]["guarantee"] == {"kind": "gaussian", "mu": 1.0}
    assert server["always"]["epsilon"] == GaussianDP(1.0).epsilon(1e-5)
    assert server["epsilon_per_agent"][3:] == [GaussianDP(0.1).epsilon(1e-5), "inf"]
    assert plain["releases"][0]["shape"] == [3]
    assert plain["if_unseen"][0]["epsilon"] == GaussianDP(0.2).epsilon(1e-5)
    assert f"- record 3: ({round_up(GaussianDP(0.2).epsilon(1e-5))}, 1e-05)" in repr(report)


def test_the_worst_realisation_stands_below_the_average():
    average = Mixture((0.9, 0.1), (GaussianDP(0.1), GaussianDP(1.0)))
    report = report_of(observer(guarantee=average, always=GaussianDP(1.0)))
    lines = repr(report).splitlines()[3:5]
    for line, name, guarantee in zip(
        lines, ("server ", "server, at worst "), (average, GaussianDP(1.0)), strict=True
    ):
        assert line.startswith(name)
        assert f"({round_up(guarantee.epsilon(1e-5))}, 1e-05)" in line
    assert report.worst_case() == GaussianDP(1.0)


def test_agents_that_differ_have_figures_of_their_own():
    labels = ("west", "east", "north", "south")
    report = report_of(observer(per_agent=list(AGENTS)), agent_labels=labels)
    epsilons = report.epsilon_per_agent("server")
    assert epsilons.tolist() == [agent.epsilon(1e-5) for agent in AGENTS]
    assert epsilons.max() == report.epsilon("server")
    low, middle, high = (round_up(epsilons[i]) for i in (3, 1, 0))
    line = f"server: epsilon per agent from {low} to {high}, median {middle}"
    assert line in repr(report).splitlines()
    for place, label in enumerate(labels):
        assert report.epsilon_of(label, "server") == epsilons[place]
        assert report.epsilon_of(label, delta=1e-3) < epsilons[place]
        assert f"{label:5}  {round_up(epsilons[place])}" in repr(report)
    with pytest.raises(ValueError, match=r"Got agent='centre', expected one of \['west'"):
        report.epsilon_of("centre")
    # Without labels agents are called by their places. Many are not listed, nor equal ones.
    assert report_of(observer(per_agent=AGENTS)).epsilon_of(2) == epsilons[2]
    many = tuple(f"agent {k}" for k in range(12))
    assert "agent 3" not in repr(report_of(observer(per_agent=AGENTS * 3), agent_labels=many))
    alike = report_of(observer(per_agent=AGENTS[:1] * 4), agent_labels=labels)
    assert "per agent" not in repr(alike)
    assert "west" not in repr(alike)
    nobody = report_of(observer(guarantee=NonPrivate()), agent_labels=labels)
    assert nobody.epsilon_per_agent().tolist() == [math.inf] * 4
    some = (GaussianDP(0.0), NonPrivate(), NonPrivate())
    text = repr(report_of(observer(guarantee=NonPrivate(), per_agent=some)))
    assert "from 0 to inf, median inf" in text


def test_epsilon_of_many_agents_is_computed_once_for_each_distinct_guarantee():
    asked = []

    class Counting(GaussianDP):
        def epsilon(self, delta):
            asked.append(self.mu)
            return super().epsilon(delta)

    agents = (Counting(0.3),) * 5_000 + tuple(Counting(0.1) for _ in range(5_000))
    assert report_of(observer(per_agent=agents)).epsilon_per_agent().shape == (10_000,)
    assert sorted(asked) == [0.1, 0.3]


@pytest.mark.slow
def test_importing_the_room_stays_cheap():
    """Neither dp-accounting nor scipy.stats, which take longer than the room itself."""
    program = (
        "import sys, types\n"
        "sys.modules['skdpadmm'] = parent = types.ModuleType('skdpadmm')\n"
        f"parent.__path__ = [{str(Path(privacy.__file__).parents[1])!r}]\n"
        "import skdpadmm.privacy\n"
        "print(sorted({'dp_accounting', 'scipy.stats', 'sklearn'} & set(sys.modules)))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr
