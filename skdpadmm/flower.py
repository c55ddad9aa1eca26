"""Flower apps of a federation whose parties keep their rows.

`client_app` makes the ClientApp that each party runs, `server_app` the ServerApp of a server that
has no rows. Both take a federated estimator and public facts; :mod:`skdpadmm.parties` has the
protocol and the guarantee. The extra ``skdpadmm[flower]`` installs Flower.

A reply to the server is one array with noise, the party's label, or one of a few fixed words.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

from skdpadmm.ledger import PrivacyBudgetExceeded
from skdpadmm.parties import Party, Refusal, coordinate

try:
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ImportError as error:
    raise ImportError("skdpadmm.flower needs Flower: pip install 'skdpadmm[flower]'") from error

__all__ = ["client_app", "server_app"]

LOG = logging.getLogger(__name__)
# Seconds between two looks at which nodes are there.
PATIENCE = 1.0
REQUEST, ANSWER = "request", "answer"


def client_app(
    estimator: Any,
    load_rows: Callable[[Context], tuple[Any, Any]],
    *,
    agent_sizes: Mapping[str, int],
    public_keys: Mapping[str, str] | None = None,
) -> ClientApp:
    """Make the ClientApp of a party.

    Parameters
    ----------
    estimator : federated estimator
        With the parameters that all parties agreed on.
    load_rows : callable
        ``load_rows(context)`` returns the party's own X and y; called for each message.
    agent_sizes : dict of str to int
        Public: how many rows each party has, by label.
    public_keys : dict of str to str, default=None
        Public: what :func:`skdpadmm.parties.new_key` returned to each party, by label.

    Returns
    -------
    app : flwr.clientapp.ClientApp

    Notes
    -----
    The node's own configuration has ``agent``, the party's label; ``journal``, a file for what it
    sends; ``ledger``, where each run is counted before anything is sent; and ``private_key``. The
    last two are required where pairs share noise. Only a ledger with a limit bounds how many runs a
    server can start.

    What fails is logged at the party; the server is told "refused".

    A SuperNode runs the code that the SuperLink sends. So all this holds against a server that
    follows the protocol, or where the SuperNode has ``--trusted-entities`` and takes only apps that
    somebody signed whom the party trusts. `skdpadmm.parties.Party` behind a transport of your own
    does not depend on that.
    """
    app = ClientApp()

    def party(context: Context) -> Party:
        config = context.node_config
        X, y = load_rows(context)
        own = clone(estimator).set_params(ledger=config.get("ledger", estimator.ledger))
        kept: dict[str, Any] = {"agent_sizes": agent_sizes, "public_keys": public_keys}
        kept |= {name: config[name] for name in ("journal", "private_key") if name in config}
        return Party(own, X, y, agent=config["agent"], **kept)

    @app.query()
    def name(message: Message, context: Context) -> Message:
        content = RecordDict({ANSWER: ConfigRecord({"agent": str(context.node_config["agent"])})})
        return Message(content, reply_to=message)

    @app.train()
    def answer(message: Message, context: Context) -> Message:
        run = f"flower {message.metadata.run_id}"
        outcome, arrays = "sent", []
        try:
            request: dict[str, Any] = dict(message.content.config_records[REQUEST])
            for total in message.content.array_records[ANSWER].to_numpy_ndarrays():
                request["total"] = total
            sent = party(context).answer(run, **request)
            arrays = [] if sent is None else [sent]
        except (Refusal, PrivacyBudgetExceeded) as error:
            LOG.error("Refused a request of run %r: %s", run, error)
            outcome = "refused"
        except Exception:
            # Its text may depend on rows.
            LOG.exception("Could not answer a request of run %r.", run)
            outcome = "refused"
        content = RecordDict({ANSWER: ArrayRecord(arrays)})
        content[REQUEST] = ConfigRecord({"outcome": outcome})
        return Message(content, reply_to=message)

    return app


def server_app(
    estimator: Any,
    save: Callable[[Any, Context], None],
    *,
    agent_sizes: Mapping[str, int],
    columns: int | Sequence[str],
    public_keys: Mapping[str, str] | None = None,
    timeout: float = 600.0,
) -> ServerApp:
    """Make the ServerApp, which adds up the messages of all parties.

    Parameters
    ----------
    estimator : federated estimator
        With the parameters that all parties agreed on.
    save : callable
        ``save(model, context)`` gets the fitted model.
    agent_sizes : dict of str to int
        Public: how many rows each party has, by label.
    columns : int or sequence of str
        Public: the number of features, or their names in order.
    public_keys : dict of str to str, default=None
        Public: the keys of parties by label, where pairs of them share noise.
    timeout : float, default=600.0
        Seconds that the server waits for all parties to be there, and for each of their messages.
        Without a message the run ends, and what was sent counts.

    Returns
    -------
    app : flwr.serverapp.ServerApp
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        nodes = _nodes_of(grid, set(agent_sizes), timeout)
        ask = partial(_ask, grid, nodes, timeout)
        facts: dict[str, Any] = {"agent_sizes": agent_sizes, "public_keys": public_keys}
        model = coordinate(estimator, ask, columns=columns, **facts)
        save(model, context)

    return app


def _nodes_of(grid: Grid, labels: set[str], timeout: float) -> dict[int, str]:
    """The label of each node, once all parties are there, each of them once."""
    until, known = time.monotonic() + timeout, {}
    while True:
        new = [node for node in grid.get_node_ids() if node not in known]
        for reply in _replies(grid, {node: RecordDict() for node in new}, "query", timeout):
            known[reply.metadata.src_node_id] = str(reply.content.config_records[ANSWER]["agent"])
        if set(known.values()) >= labels or time.monotonic() > until:
            break
        time.sleep(PATIENCE)
    found = sorted(known.values())
    if found != sorted(labels):
        raise ValueError(f"Got parties {found}, expected {sorted(labels)}, each of them once.")
    return known


def _ask(
    grid: Grid, nodes: Mapping[int, str], timeout: float, request: dict[str, Any]
) -> dict[str, Any]:
    """The answers of all parties to a request, by label; a refusal ends the run."""
    total = request["total"]
    content = RecordDict(
        {
            REQUEST: ConfigRecord({"digest": request["digest"], "number": request["number"]}),
            ANSWER: ArrayRecord([] if total is None else [np.asarray(total)]),
        }
    )
    answers: dict[str, Any] = {}
    for reply in _replies(grid, dict.fromkeys(nodes, content), "train", timeout):
        label = nodes[reply.metadata.src_node_id]
        outcome = reply.content.config_records[REQUEST]["outcome"]
        if outcome != "sent":
            raise ValueError(f"Got {outcome!r} of {label!r}, expected a message. Its log says why.")
        arrays = reply.content.array_records[ANSWER].to_numpy_ndarrays()
        answers[label] = arrays[0] if arrays else None
    return answers


def _replies(
    grid: Grid, contents: Mapping[int, RecordDict], kind: str, timeout: float
) -> list[Message]:
    """Replies to a message to each node, but for those that had an error."""
    messages = [
        Message(content, dst_node_id=n, message_type=kind) for n, content in contents.items()
    ]
    replies = grid.send_and_receive(messages, timeout=timeout) if messages else []
    return [reply for reply in replies if not reply.has_error()]
