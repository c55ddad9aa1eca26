"""Apps of Flower: the messages of parties, the labels of nodes, and fixed words."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import ServerApp
from flwr.supercore.task_identity import TaskIdentity

from skdpadmm import DPFedRidge
from skdpadmm.algorithms import FederatedADMM
from skdpadmm.flower import ANSWER, REQUEST, client_app, server_app
from skdpadmm.ledger import PrivacyLedger

SIZES = {"a": 60, "b": 40}
X = np.random.default_rng(0).uniform(-1, 1, (100, 2))
Y = X @ [0.5, -0.5]
ROWS = {"a": (X[:60], Y[:60]), "b": (X[60:], Y[60:])}
ESTIMATOR = DPFedRidge(
    feature_bounds=(-1, 1),
    target_bounds=(-1, 1),
    algorithm=FederatedADMM(edge_noise=0),
    max_iter=2,
    epsilon=5.0,
)


def load_rows(context):
    return ROWS[context.node_config["agent"]]


class Nodes:
    """A grid that calls the apps of nodes in this process, and keeps what they reply."""

    def __init__(self, folder, apps, labels=("a", "b")):
        self.apps, self.replies = apps, []
        self.contexts = {}
        for node, label in enumerate(labels, start=1):
            config = {"agent": label}
            config |= {name: str(folder / f"{label}.{name}") for name in ("journal", "ledger")}
            self.contexts[node] = Context(
                run_id=7, node_id=node, node_config=config, state=RecordDict(), run_config={}
            )

    def get_node_ids(self):
        return list(self.contexts)

    def send_and_receive(self, messages, *, timeout=None):
        for message in messages:
            node = message.metadata.dst_node_id
            reply = self.apps[node - 1](message, self.contexts[node])
            self.replies.append(reply)
            yield reply


def run(grid, estimator=ESTIMATOR):
    saved = []
    app = server_app(
        estimator,
        lambda model, context: saved.append(model),
        agent_sizes=SIZES,
        columns=2,
        timeout=1e-3,  # all nodes answer at once
    )
    assert isinstance(app, ServerApp)
    app(grid, Context(run_id=7, node_id=0, node_config={}, state=RecordDict(), run_config={}))
    return saved[0]


@pytest.fixture
def app(monkeypatch):
    # Of a process that Flower has started.
    for name in ("run_id", "node_id", "task_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 7)
    return client_app(ESTIMATOR, load_rows, agent_sizes=SIZES)


def test_apps_fit_the_model_that_all_parties_planned(app, tmp_path):
    grid = Nodes(tmp_path, [app, app])
    model = run(grid)
    simulated = ESTIMATOR.fit(X, Y, agents=np.repeat(["a", "b"], [60, 40]))
    assert model.privacy_ == simulated.privacy_
    for label in SIZES:
        (entry,) = PrivacyLedger(tmp_path / f"{label}.ledger").entries()
        assert entry["state"] == "done"


def test_a_reply_is_one_planned_message_or_fixed_words(app, tmp_path):
    grid = Nodes(tmp_path, [app, app])
    run(grid)
    plan = ESTIMATOR.plan(100, 2, agent_sizes=SIZES)
    shapes = [release.shape for release in plan.releases for _ in range(release.times)]
    queries, answers = grid.replies[:2], grid.replies[2:]
    assert [dict(reply.content[ANSWER]) for reply in queries] == [{"agent": "a"}, {"agent": "b"}]
    assert len(answers) == 2 * (len(shapes) + 1)
    for k, reply in enumerate(answers):
        assert set(reply.content) == {REQUEST, ANSWER}
        assert dict(reply.content[REQUEST]) == {"outcome": "sent"}
        sent = [array.shape for array in reply.content[ANSWER].to_numpy_ndarrays()]
        assert sent == shapes[k // 2 : k // 2 + 1]


def test_a_party_with_other_parameters_says_refused_and_no_more(app, tmp_path):
    grid = Nodes(tmp_path, [app, app])
    other = DPFedRidge(**ESTIMATOR.get_params(deep=False) | {"n_honest": 2})
    with pytest.raises(ValueError, match=r"^Got 'refused' of 'a'"):
        run(grid, other)
    assert not (tmp_path / "a.journal").exists()
    assert not grid.replies[-1].content[ANSWER]


def test_an_error_of_rows_does_not_reach_the_server(app, tmp_path, caplog):
    def missing(context):
        return np.where(X[:60] > 0.9, np.nan, X[:60]), Y[:60]

    broken = client_app(ESTIMATOR, missing, agent_sizes=SIZES)
    grid = Nodes(tmp_path, [broken, app])
    with pytest.raises(ValueError, match=r"^Got 'refused' of 'a'"):
        run(grid)
    assert "contains NaN" in caplog.text
    assert dict(grid.replies[-1].content[REQUEST]) in ({"outcome": "refused"}, {"outcome": "sent"})
    assert "NaN" not in str(grid.replies[2].content)


@pytest.mark.parametrize("labels", [("a",), ("a", "a"), ("a", "b", "c"), ("a", "x")])
def test_every_party_is_there_once(app, labels, tmp_path):
    with pytest.raises(ValueError, match=r"^Got parties \["):
        run(Nodes(tmp_path, [app] * 3, labels))


@pytest.mark.parametrize(
    "request_", [{}, {"digest": 1.5, "number": 0}, {"digest": "x", "number": "0"}, {"run": "other"}]
)
def test_malformed_requests_get_fixed_words(app, request_, tmp_path):
    grid = Nodes(tmp_path, [app, app])
    content = RecordDict({REQUEST: ConfigRecord(request_), ANSWER: ArrayRecord([])})
    (reply,) = grid.send_and_receive([Message(content, dst_node_id=1, message_type="train")])
    assert not reply.content[ANSWER]
    assert reply.content[REQUEST]["outcome"] == "refused"


@pytest.mark.slow
def test_a_server_and_three_hospitals_run_as_processes():
    script = Path(__file__).parents[2] / "examples" / "flower" / "run_locally.py"
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=1800, check=True
    )
    assert "server" in done.stdout
