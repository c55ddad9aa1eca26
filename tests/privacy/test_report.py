"""The report says who sees what, and never a number below the truth."""

import json
import math
import pickle
import re
import sys
from html import unescape
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdpadmm import privacy
from skdpadmm._numbers import percent_up
from skdpadmm.privacy import GaussianDP, Mixture, NonPrivate, Observer, round_down, round_up

REPLACE_ONE, ZERO_OUT, _ = privacy.Neighboring
STEADY = GaussianDP(0.3)
RARE = Mixture((0.5, 0.5), (GaussianDP(0.0), STEADY))
AGENTS = (STEADY, RARE, RARE, GaussianDP(0.1))


def observer(guarantee=STEADY, **changes):
    return Observer("server", "<sums> & more", "agent", ZERO_OUT, guarantee, **changes)


def report_of(*observers, **changes):
    model = Observer("model", "all", "record", REPLACE_ONE, GaussianDP(0.2681))
    observers = observers or (model, observer(guarantee=NonPrivate()))
    line = privacy.ReleaseLine("mean", 10, (3,), 0.123456, 0.123456)
    parts = {"subject": "DPAdmmLasso", "releases": (line,), "delta": 1e-5, "simulation": ""}
    parts |= {"assumptions": ("the noise is honest",), "not_covered": ("timing",)}
    return privacy.PrivacyReport(**({"observers": observers} | parts | changes))


@given(st.floats(min_value=0, max_value=1e300))
def test_printed_numbers_bound_the_float_from_their_side(value):
    up, down = float(round_up(value)), float(round_down(value))
    assert down <= value <= up
    assert up <= value * (1 + 1.001e-3) or value < 1e-300
    assert [round_up(value) for value in (0.2, 1e-6, 0.0, math.inf)] == ["0.2", "1e-06", "0", "inf"]
    assert (round_up(0.123401), round_down(0.123499)) == ("0.1235", "0.1234")


def test_text_says_who_sees_what():
    text = repr(report_of(simulation="random_state is an int."))
    epsilon = re.escape(round_up(GaussianDP(0.2681).epsilon(1e-5)))
    assert re.search(rf"(?m)^model .*replace one .*\({epsilon}, 1e-05\).*GDP\(mu=0.2681\)", text)
    assert re.search("(?m)^server .*not private", text)
    for shown in (
        "\nobserver  sees           unit    neighbors    (epsilon, delta)",
        "(epsilon, delta)  guarantee       attack accuracy\n",
        "Against model: no attack can tell row A from row B more than 55.34 % of the time (a coin",
        "mean     10     (3,)   0.1235       0.1234",
        "Assumes:\n- the noise is honest",
        "Does not cover:\n- timing",
        "SIMULATION: random_state is an int.\n",
    ):
        assert shown in text
    assert "SIMULATION" not in repr(report_of())
    floor = Mixture((0.5, 0.5), (GaussianDP(0.1), NonPrivate()))
    assert "not private" in repr(report_of(observer(guarantee=floor)))


def test_lookup_by_observer_and_delta():
    report = report_of()
    assert report.guarantee() == report.worst_case() == GaussianDP(0.2681)
    assert report.epsilon() == GaussianDP(0.2681).epsilon(1e-5) > report.epsilon(delta=1e-3)
    assert report_of(*report.observers, adversary="server").epsilon() == math.inf
    assert report == report_of() == pickle.loads(pickle.dumps(report))
    for call, message in (
        (lambda: report.epsilon("peer"), r"Got observer='peer', expected one of \['model', 'ser"),
        (lambda: report.epsilon(1e-5), r"Got observer=1e-05, .* its name: delta=1e-5\."),
        (lambda: report.epsilon(0.0), "Got observer=0.0"),
        (
            lambda: report.epsilon_per_agent("server"),
            r"without agents.* Use epsilon\('server'\)",
        ),
        (lambda: report_of(observer(), observer()), "expected distinct names"),
        (lambda: report_of(adversary="peer"), "Got adversary='peer'"),
        *((lambda delta=delta: report_of(delta=delta), "Got delta") for delta in (-1e-6, math.nan)),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_html_is_escaped_and_balanced_and_loads_nothing():
    shown = observer(always=GaussianDP(1.0), per_agent=AGENTS)
    labels, changes = ("<script>", "b", "c", "d"), {"subject": "<agent>", "simulation": "a < b"}
    html = report_of(shown, agent_labels=labels, **changes)._repr_html_()
    root = ElementTree.fromstring(html)
    assert not {element.tag for element in root.iter()} & {"script", "sums", "agent", "link"}
    assert not re.search("http|url|import|src|href", html)
    texts = " ".join(root.itertext())
    for part in ("<sums> & more", "a < b", "<script>", "server, at worst", "Privacy of <agent>"):
        assert part in texts


@pytest.mark.parametrize(
    ("names", "arrows"),
    [
        (["model"], "data curator world model: {}"),
        (["server", "sums", "model"], "agents server world server: {} sums: {} model: {}"),
        (["eavesdropper", "model"], "agents peers world eavesdropper: {} model: {}"),
        (["<b>"], "data curator world <b>: {}"),
    ],
)
def test_the_picture_shows_who_receives_what_and_each_epsilon(names, arrows):
    known = [GaussianDP(0.1 * (i + 1)) for i in range(len(names))]
    observers = [
        Observer(name, "all", "record", ZERO_OUT, guarantee)
        for name, guarantee in zip(names, known, strict=True)
    ]
    report = report_of(*observers, adversary=names[-1])
    (svg,) = ElementTree.fromstring(report._repr_html_()).findall("svg")
    epsilons = [f"({round_up(guarantee.epsilon(1e-5))}, 1e-05)" for guarantee in known]
    assert " ".join(text.text for text in svg.findall("text")) == arrows.format(*epsilons)
    bold = [text.text for text in svg.findall("text") if text.get("font-weight")]
    assert bold == [f"{names[-1]}: {epsilons[-1]}"]
    accuracy = percent_up(known[-1].attack_accuracy())
    assert re.search(rf"Against {names[-1]}: .* more than {accuracy} of", repr(report))


@pytest.mark.parametrize(
    ("unit", "neighboring", "question"),
    [
        ("record", ZERO_OUT, "whether a row was used"),
        ("agent", REPLACE_ONE, "one version of the rows of an agent from another"),
        ("person", ZERO_OUT, "whether the rows of a person were used"),
    ],
)
def test_the_report_says_what_an_attack_cannot_tell(unit, neighboring, question):
    report = report_of(Observer("model", "all", unit, neighboring, GaussianDP(16.0)))
    assert f"no attack can tell {question} more than 100 % of the time" in repr(report)


def test_frame_and_markdown_have_what_the_text_has(monkeypatch):
    report = report_of(observer(always=GaussianDP(1.0)), assumptions=("a | *b* <c>",))
    frame = pytest.importorskip("pandas").DataFrame(report.to_frame()).set_index("observer")
    server = frame.loc["server"]
    assert server["epsilon"] == STEADY.epsilon(1e-5) < server["worst_case_epsilon"]
    assert server["attack_accuracy"] == STEADY.attack_accuracy()
    lines = report.to_markdown().splitlines()
    assert lines[0] == "## Privacy"
    assert r"- a \| \*b\* &lt;c&gt;" in lines
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| server")]
    texts = [re.split("  +", line) for line in repr(report).splitlines() if line[:6] == "server"]
    assert [list(map(unescape, row)) for row in cells] == texts
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        report.to_frame()


def test_dictionary_is_strict_json():
    shown = observer(always=GaussianDP(1.0), per_agent=(*AGENTS, NonPrivate()))
    unseen = (("record 3", GaussianDP(0.2)),)
    report = report_of(*report_of().observers[:1], shown, if_unseen=unseen)
    plain = report.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    model, server = plain["observers"]
    assert model["epsilon"] == GaussianDP(0.2681).epsilon(1e-5)
    assert (model["always"], model["epsilon_per_agent"]) == (None, [])
    assert server["always"]["guarantee"] == GaussianDP(1.0).to_dict()
    assert server["always"]["epsilon"] == GaussianDP(1.0).epsilon(1e-5)
    assert server["always"]["attack_accuracy"] == GaussianDP(1.0).attack_accuracy()
    assert server["epsilon_per_agent"][3:] == [GaussianDP(0.1).epsilon(1e-5), "inf"]
    assert plain["if_unseen"][0]["epsilon"] == GaussianDP(0.2).epsilon(1e-5)
    assert re.search(
        rf"\nserver, at worst .*\({round_up(GaussianDP(1.0).epsilon(1e-5))}", repr(report)
    )
    assert report.worst_case("server") == GaussianDP(1.0)
    assert f"- record 3: ({round_up(GaussianDP(0.2).epsilon(1e-5))}, 1e-05)" in repr(report)


def test_agents_that_differ_have_figures_of_their_own():
    labels = ("west", "east", "north", "south")
    report = report_of(observer(per_agent=list(AGENTS)), agent_labels=labels)
    epsilons = report.epsilon_per_agent("server")
    assert epsilons.tolist() == [agent.epsilon(1e-5) for agent in AGENTS]
    low, middle, high = (round_up(epsilons[i]) for i in (3, 1, 0))
    line = f"server: epsilon per agent from {low} to {high}, median {middle}\n"
    assert line in repr(report)
    for place, label in enumerate(labels):
        assert report.epsilon_of(label, "server") == epsilons[place]
        assert report.epsilon_of(label, delta=1e-3) < epsilons[place]
        assert f"{label:5}  {round_up(epsilons[place])}" in repr(report)
    with pytest.raises(ValueError, match=r"Got agent='centre', expected one of \['west'"):
        report.epsilon_of("centre")
    # Without labels agents are called by their places. Many are not listed, nor equal ones.
    assert report_of(observer(per_agent=AGENTS)).epsilon_of(2) == epsilons[2]
    many = tuple(f"west {k}" for k in range(12))
    assert "west" not in repr(report_of(observer(per_agent=AGENTS * 3), agent_labels=many))
    alike = repr(report_of(observer(per_agent=AGENTS[:1] * 4), agent_labels=labels))
    assert "per agent" not in alike
    assert "west" not in alike
    nobody = report_of(observer(guarantee=NonPrivate()), agent_labels=labels)
    assert nobody.epsilon_per_agent().tolist() == [math.inf] * 4


def test_a_budget_that_was_met_is_stated_as_the_budget():
    budget, mu = 1.0, privacy.gaussian_mu(1.0, 1e-5) * (1 - 1e-12)
    report = report_of(Observer("model", "all", "record", REPLACE_ONE, GaussianDP(mu)), budget=1.0)
    assert report.epsilon() == budget > GaussianDP(mu).epsilon(1e-5)
    assert report.to_dict()["observers"][0]["epsilon"] == report.metrics()["epsilon"] == budget
    # At another delta nothing was promised.
    assert report.epsilon(delta=1e-6) == GaussianDP(mu).epsilon(1e-6)


@pytest.mark.parametrize("budget", [1.0, 0.5, 3.0, 0.99999, 1.00001])
@pytest.mark.parametrize("factor", [1.0, 1 + 1e-6, 1 - 1e-6, 1 + 1e-10, 1.5])
def test_an_epsilon_is_never_stated_below_its_guarantee(budget, factor):
    guarantee = GaussianDP(privacy.gaussian_mu(1.0, 1e-5) * factor)
    seen = Observer("model", "all", "record", REPLACE_ONE, guarantee)
    stated, known = report_of(seen, budget=budget).epsilon(), guarantee.epsilon(1e-5)
    assert known <= stated <= known * (1 + 1.001e-9)


def test_metrics_are_floats_by_name_for_a_tracker_of_experiments():
    own = Mixture((0.5, 0.5), (GaussianDP(0.1), STEADY))
    for guarantee, names in ((STEADY, {"mu"}), (own, set()), (NonPrivate(), set())):
        seen = Observer("model", "all", "record", REPLACE_ONE, guarantee)
        metrics = report_of(seen).metrics()
        assert set(metrics) == {"epsilon", "delta", "attack_accuracy"} | names
        assert all(type(value) is float and value == value for value in metrics.values())
    assert report_of(signal_strength=57.0).metrics()["signal"] == 57.0
