"""Parties that keep their rows beside a simulation, and beside Flower's own private averaging.

    python benchmarks/parties.py            20 seeds, a few minutes
    python benchmarks/parties.py --quick    2 seeds

Adult (36,000 training rows) is split among three parties. "simulation" is one fit of all rows,
"parties" the same estimator by `client_app` and `server_app`, whose messages a grid in this process
hands over: no transport is timed. "Flower" is the logistic regression of its quickstart, one
step of L-BFGS in each round, under `FedAvg` with `DifferentialPrivacyServerSideFixedClipping`, with
the noise that is (epsilon, delta)-DP for as many rounds at full participation. That epsilon is of
another kind: its unit is a whole party and it holds against those who see the models, while the
server sees updates without noise. Ours is of one row and holds against the server.

Bytes are those of arrays in both directions, for each party. The guarantee is replace-one, delta
1e-5. Nothing printed here depends on private data but scores on public test rows.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _data import load
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.supercore.task_identity import TaskIdentity
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from skdpadmm import DPFedLogisticRegression
from skdpadmm.flower import client_app, server_app
from skdpadmm.privacy import gaussian_mu

LABELS = ("a", "b", "c")
EPSILONS = (1.0, 3.0, 10.0)
ROUNDS, DELTA = 20, 1e-5


class Here:
    """A grid of nodes in this process, which counts the bytes of arrays."""

    def __init__(self, app: ClientApp, folder: str) -> None:
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
        self.app, self.n_bytes = app, 0
        self.contexts = {node: self.context(node, folder) for node in range(len(LABELS))}

    def context(self, node: int, folder: str) -> Context:
        """What a node knows of itself."""
        paths = {name: str(Path(folder, f"{node}.{name}")) for name in ("journal", "ledger")}
        config = {"agent": LABELS[node], **paths}
        return Context(1, node, config, RecordDict(), {})

    def get_node_ids(self) -> list[int]:
        """Nodes of all parties."""
        return list(self.contexts)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterator[Message]:
        """Replies, one after the other."""
        for message in messages:
            reply = self.app(message, self.contexts[message.metadata.dst_node_id])
            for content in (message.content, reply.content):
                for record in content.array_records.values():
                    self.n_bytes += sum(array.numpy().nbytes for array in record.values())
            yield reply


def of_parties(model: Any, X: Any, y: Any, owners: Any) -> tuple[Any, float]:
    """A model by apps of Flower, and kilobytes of a round and a party."""
    sizes = {label: int(np.sum(owners == label)) for label in LABELS}
    saved: list[Any] = []

    def load_rows(context: Context) -> tuple[Any, Any]:
        own = owners == context.node_config["agent"]
        return X[own], y[own]

    def save(model: Any, context: Context) -> None:
        saved.append(model)

    with tempfile.TemporaryDirectory() as folder:
        grid = Here(client_app(model, load_rows, agent_sizes=sizes), folder)
        app = server_app(model, save, agent_sizes=sizes, columns=X.shape[1])
        app(grid, grid.context(0, folder))  # type: ignore[arg-type]
    fitted = saved[0]
    n_requests = 1 + sum(
        release.times for release in model.plan(len(X), X.shape[1], agent_sizes=sizes).releases
    )
    return fitted, grid.n_bytes / n_requests / len(LABELS) / 1000


def averaged(epsilon: float) -> Callable[..., tuple[Any, float]]:
    """Flower's private averaging of whole parties."""

    def fit(model: Any, X: Any, y: Any, owners: Any) -> tuple[Any, float]:
        app = ClientApp()

        def regression(arrays: list[Any]) -> LogisticRegression:
            local = LogisticRegression(max_iter=1, warm_start=True)
            local.classes_, (local.coef_, local.intercept_) = np.array([0, 1]), arrays
            return local

        @app.train()
        def train(message: Message, context: Context) -> Message:
            own = owners == context.node_config["agent"]
            local = regression(message.content["arrays"].to_numpy_ndarrays())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                local.fit(X[own], y[own])
            content = RecordDict({"arrays": ArrayRecord([local.coef_, local.intercept_])})
            content["metrics"] = MetricRecord({"num-examples": 1})
            return Message(content, reply_to=message)

        # A replaced party moves the sum of clipped updates by twice the clip bound.
        multiplier = 2 * math.sqrt(ROUNDS) / gaussian_mu(epsilon, DELTA)
        strategy = DifferentialPrivacyServerSideFixedClipping(
            FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3),
            noise_multiplier=multiplier,
            clipping_norm=1.0,
            num_sampled_clients=3,
        )
        grid, start = Here(app, ""), ArrayRecord([np.zeros((1, X.shape[1])), np.zeros(1)])
        result = strategy.start(grid, start, num_rounds=ROUNDS)  # type: ignore[arg-type]
        final = regression(result.arrays.to_numpy_ndarrays())
        return final, grid.n_bytes / ROUNDS / len(LABELS) / 1000

    return fit


def simulated(model: Any, X: Any, y: Any, owners: Any) -> tuple[Any, float]:
    """All parties in one process."""
    return model.fit(X, y, agents=owners), 0.0


def main() -> None:
    """Print a table of accuracy, time and traffic."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="2 seeds")
    n_seeds = 2 if parser.parse_args().quick else 20
    warnings.simplefilter("ignore")
    data = load("adult")
    rows = data.rows()[:, :-1]
    print(f"{'':12} {'epsilon':>8} {'accuracy':>9} {'std':>6} {'s / round':>10} {'kB / round':>10}")
    for epsilon in EPSILONS:
        kinds = {"simulation": simulated, "parties": of_parties, "Flower": averaged(epsilon)}
        for name, fit in kinds.items():
            scores, seconds, kilobytes = [], [], 0.0
            for seed in range(n_seeds):
                X, X_test, y, y_test = train_test_split(
                    rows, data.y, train_size=36_000, random_state=seed
                )
                owners = np.array(LABELS)[np.random.default_rng(seed).integers(3, size=len(X))]
                model = DPFedLogisticRegression(
                    epsilon=epsilon, classes=[0, 1], feature_bounds=(-1, 1), max_iter=ROUNDS
                )
                begun = time.perf_counter()
                fitted, kilobytes = fit(model, X, y, owners)
                seconds.append((time.perf_counter() - begun) / ROUNDS)
                scores.append(fitted.score(X_test, y_test))
            print(
                f"{name:12} {epsilon:8g} {np.mean(scores):9.4f} {np.std(scores):6.4f}"
                f" {statistics.median(seconds):10.3f} {kilobytes:10.2f}"
            )


if __name__ == "__main__":
    main()
