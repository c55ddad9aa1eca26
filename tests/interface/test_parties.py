"""Parties that keep their rows run the plan of a simulation, and send nothing else."""

import copy
import os
import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2
from sklearn.base import clone

from skdpadmm import DPFedElasticNet, DPFedLogisticRegression, DPFedRidge
from skdpadmm.algorithms import FederatedADMM
from skdpadmm.ledger import PrivacyBudgetExceeded, PrivacyLedger
from skdpadmm.noise import CryptographicNoise, KeyedNoise
from skdpadmm.parties import (
    MESSAGE,
    Journal,
    Party,
    Refusal,
    _PartyGate,
    coordinate,
    new_key,
)

SIZES = {"a": 40, "b": 70, "c": 30}
LABELS = np.repeat(list(SIZES), list(SIZES.values()))
X = np.random.default_rng(0).uniform(-1, 1, (140, 3))
Y = X @ [0.8, -0.5, 0.2] + 0.1
RANGES = {"feature_bounds": (-1, 1), "max_iter": 4, "epsilon": 5.0}
ALONE = FederatedADMM(edge_noise=0)
RIDGE = DPFedRidge(target_bounds=(-2, 2), algorithm=ALONE, **RANGES)
PAIRED = DPFedRidge(target_bounds=(-2, 2), **RANGES)
NET = DPFedElasticNet(alpha=0.01, target_bounds=(-2, 2), algorithm=ALONE, **RANGES)
STATES = DPFedRidge(
    target_bounds=(-2, 2),
    conditioning=None,
    algorithm=FederatedADMM(relaxation=0.3, local_step="exact"),
    **RANGES,
)
LOGISTIC = DPFedLogisticRegression(classes=[0, 1], **RANGES)
MULTINOMIAL = DPFedLogisticRegression(classes=[0, 1, 2], adversary="model", **RANGES)
INTERVALS = DPFedLogisticRegression(classes=[0, 1], intervals=True, **RANGES)
UNDECLARED = DPFedRidge(max_iter=4, epsilon=50.0, scale="private")
ESTIMATORS = [RIDGE, PAIRED, NET, STATES, LOGISTIC, MULTINOMIAL, INTERVALS, UNDECLARED]


def targets(estimator):
    classes = getattr(estimator, "classes", None)
    return Y if classes is None else np.searchsorted([0.0, 0.4][: len(classes) - 1], Y)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A folder of private keys, and the public ones by label."""
    folder = tmp_path_factory.mktemp("keys")
    return folder, {label: new_key(folder / label) for label in SIZES}


@pytest.fixture(autouse=True)
def known(keys, monkeypatch):
    monkeypatch.setattr(f"{__name__}.KEYS", keys)


KEYS = None


def with_ledger(estimator, path):
    """The same estimator, with a ledger where pairs share noise and it has none."""
    shares = getattr(estimator.algorithm, "edge_noise", None) != 0
    if estimator.ledger is not None or not shares:
        return estimator
    return clone(estimator).set_params(ledger=str(path))


def parties_of(estimator, folder, X=X, **changed):
    y = targets(estimator)
    return {
        label: Party(
            with_ledger(estimator, folder / f"{label}.ledger"),
            X[label == LABELS],
            y[label == LABELS],
            agent=label,
            agent_sizes=SIZES,
            journal=folder / f"{label}.db",
            private_key=KEYS[0] / label,
            public_keys=KEYS[1],
            **changed,
        )
        for label in SIZES
    }


def party_with_ledger(folder, journal="a.db"):
    """A party that needs no key."""
    estimator = clone(RIDGE).set_params(ledger=str(folder / "a.ledger"))
    facts = {"agent": "a", "agent_sizes": SIZES, "journal": folder / journal}
    return Party(estimator, X[:40], Y[:40], **facts)


def to_all(parties, run="run", seen=None):
    def exchange(request):
        answers = {label: party.answer(run, **request) for label, party in parties.items()}
        if seen is not None:
            seen.append((request, answers))
        return answers

    return exchange


def coordinated(estimator, exchange, columns=3):
    return coordinate(estimator, exchange, agent_sizes=SIZES, columns=columns, public_keys=KEYS[1])


@pytest.fixture
def silent(monkeypatch):
    """No noise, here and in a simulation."""
    monkeypatch.setattr(CryptographicNoise, "add_gaussian", lambda self, value, *noise: value)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_parties_find_the_model_of_a_simulation(estimator, tmp_path, silent):
    parties = parties_of(estimator, tmp_path)
    model = coordinated(estimator, to_all(parties))
    simulated = estimator.fit(X, targets(estimator), agents=LABELS)
    for fitted in (model, *(party.model for party in parties.values())):
        np.testing.assert_allclose(fitted.coef_, simulated.coef_, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(fitted.predict(X), simulated.predict(X), rtol=1e-9)
        assert fitted.privacy_ == simulated.privacy_
        if estimator.intervals:
            found, expected = fitted.inference_, simulated.inference_
            np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-6)
            np.testing.assert_allclose(found.estimate, expected.estimate, rtol=1e-6)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_parties_plan_what_a_simulation_plans(estimator, tmp_path):
    planned = {party.plan.digest() for party in parties_of(estimator, tmp_path).values()}
    assert planned == {estimator.plan(140, 3, agent_sizes=SIZES).digest()}


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_a_party_sends_the_planned_messages_and_nothing_else(estimator, tmp_path):
    parties, seen = parties_of(estimator, tmp_path), []
    coordinated(estimator, to_all(parties, seen=seen))
    plan = parties["a"].plan
    # Those at the model come last.
    at_model = () if plan.facts.inference is None else plan.facts.inference.releases
    ordered = sorted(plan.releases, key=at_model.__contains__)
    shapes = [release.shape for release in ordered for _ in range(release.times)]
    if plan.facts.agents.edge_noise:
        shapes.insert(0, (8,))  # Random numbers that secrets of this run are made of.
    for label in SIZES:
        sent = [answers[label] for _, answers in seen]
        assert [message.shape for message in sent[:-1]] == shapes
        assert all(message.dtype == np.float64 for message in sent[:-1])
        assert sent[-1] is None


@pytest.mark.usefixtures("fixed_entropy")
@pytest.mark.parametrize("epsilon", [5.0, [20.0, 2.0, 5.0]], ids=["one", "each"])
def test_what_is_sent_is_the_exact_message_and_the_planned_noise(epsilon, tmp_path, monkeypatch):
    estimator = DPFedRidge(**RIDGE.get_params(deep=False) | {"epsilon": epsilon})
    parties = parties_of(estimator, tmp_path)
    plan, n_runs = parties["a"].plan, 60
    release, sent = plan.releases[0], {label: [] for label in SIZES}
    for run in range(n_runs):
        for label, party in parties.items():
            sent[label].append(party.answer(f"{run}", digest=party.digest, number=0))
    monkeypatch.setattr(CryptographicNoise, "add_gaussian", lambda self, value, *noise: value)
    for place, (label, party) in enumerate(parties.items()):
        exact = party.answer("silent", digest=party.digest, number=0)
        std = release.agent_noise_std[plan.facts.agents.kind[place]]
        drawn = (np.array(sent[label]) - exact) / std
        # Five standard errors: half of the noise, or twice as much, is far outside.
        assert abs(drawn.mean()) < 5 / np.sqrt(drawn.size)
        assert drawn.std() == pytest.approx(1.0, abs=5 / np.sqrt(2 * drawn.size))


def test_every_message_has_one_draw_of_noise(tmp_path, monkeypatch):
    plan, excess = RIDGE.plan(140, 3, agent_sizes=SIZES), []

    def recorded(self, value, scale, stream):
        noisy = original(self, value, scale, stream)
        excess.append(noisy - value)
        assert scale == 1.0
        return noisy

    original = CryptographicNoise.add_gaussian
    monkeypatch.setattr(CryptographicNoise, "add_gaussian", recorded)
    coordinated(RIDGE, to_all(parties_of(RIDGE, tmp_path)))
    assert len(excess) == 3 * sum(release.times for release in plan.releases)


def test_what_is_asked_twice_is_sent_twice(tmp_path):
    parties, seen = parties_of(RIDGE, tmp_path), []
    asked = to_all(parties, seen=seen)
    coordinated(RIDGE, lambda request: [asked(request), asked(request)][1])
    for (_, first), (_, second) in zip(seen[::2], seen[1::2], strict=True):
        assert all(
            np.array_equal(first[label], second[label])
            for label in SIZES
            if first[label] is not None
        )


def test_one_message_is_sent_to_requests_at_the_same_time(tmp_path):
    party = parties_of(RIDGE, tmp_path)["a"]
    request = {"digest": party.digest, "number": 0}
    with ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(lambda _: party.answer("run", **request), range(16)))
    assert all(np.array_equal(message, sent[0]) for message in sent)


def test_a_party_that_restarts_goes_on_where_it_was(tmp_path, silent):
    def exchange(request):
        return to_all(parties_of(RIDGE, tmp_path))(request)

    model = coordinated(RIDGE, exchange)
    whole = coordinated(RIDGE, to_all(parties_of(RIDGE, tmp_path), run="another"))
    np.testing.assert_array_equal(model.coef_, whole.coef_)


def test_a_party_without_its_journal_does_not_go_on(tmp_path):
    party = parties_of(RIDGE, tmp_path)["a"]
    digest = party.digest
    first = party.answer("run", digest=digest, number=0)
    (tmp_path / "a.db").unlink()
    with pytest.raises(Refusal, match=r"^Got request 1 of run 'run', which the journal"):
        party.answer("run", digest=digest, number=1, total=first)


@pytest.mark.parametrize(
    ("number", "change", "match"),
    [
        (3, lambda total: total, r"^Got request 3 of run 'run', expected one of \[1, 2\]"),
        (0, lambda total: None, r"^Got request 0 of run 'run', expected one of \[1, 2\]"),
        (1, lambda total: total + 1, r"^Got another sum for request 1"),
        (2, lambda total: total * np.nan, r"^Got a sum of shape"),
        (2, lambda total: total * 1e300, r"^Got a sum of shape"),
        (2, lambda total: total[:1], r"^Got a sum of shape \(1"),
        (2, lambda total: None, r"^Got a sum of shape"),
        (2, lambda total: "text", r"^Got a sum of shape"),
    ],
)
def test_a_request_out_of_turn_gets_no_message(number, change, match, tmp_path):
    party = parties_of(RIDGE, tmp_path)["a"]
    digest, sent = party.digest, []
    for k in range(2):
        sent.append(party.answer("run", digest=digest, number=k, total=sent[-1] if k else None))
    with pytest.raises(Refusal, match=match):
        party.answer(
            "run", digest=digest, number=number, total=change(sent[-1 if number > 1 else 0])
        )
    assert len(Journal(tmp_path / "a.db", "run").all(MESSAGE)) == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"n_honest": 1},
        {"feature_bounds": (-1, 2)},
        {"epsilon": 6.0},
        {"max_iter": 5},
        {"alpha": 2.0},
    ],
    ids=str,
)
def test_a_party_refuses_the_plan_of_other_parameters(changed, tmp_path):
    parties = parties_of(RIDGE, tmp_path)
    with pytest.raises(Refusal, match=r"^Got a plan of digest"):
        coordinated(DPFedRidge(**RIDGE.get_params(deep=False) | changed), to_all(parties))
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"columns": ["y", "x", "z"]},
        {"columns": 3},
        {"agent_sizes": {"a": 40, "b": 70, "d": 30}},
        {"feature_bounds": {"x": (-1, 1), "y": (-1, 1), "z": (-2, 2)}},
    ],
    ids=str,
)
def test_a_party_refuses_what_a_plan_does_not_tell_apart(changed, tmp_path):
    bounds = {"x": (-1, 1), "y": (-2, 2), "z": (-1, 1)}
    estimator = DPFedRidge(**RIDGE.get_params(deep=False) | {"feature_bounds": bounds})
    parties = parties_of(estimator, tmp_path, X=pd.DataFrame(X, columns=["x", "y", "z"]))
    facts = {"agent_sizes": SIZES, "columns": ["x", "y", "z"], "public_keys": KEYS[1]} | changed
    if "feature_bounds" in changed:
        estimator = DPFedRidge(
            **estimator.get_params(deep=False) | {"feature_bounds": facts.pop("feature_bounds")}
        )
    if facts["columns"] == 3:
        estimator = DPFedRidge(
            **estimator.get_params(deep=False) | {"feature_bounds": ([-1, -2, -1], [1, 2, 1])}
        )
    with pytest.raises(Refusal, match=r"^Got a plan of digest"):
        coordinate(estimator, to_all(parties), **facts)


def test_a_party_refuses_classes_of_another_meaning(tmp_path):
    other = DPFedLogisticRegression(**LOGISTIC.get_params(deep=False) | {"classes": ["no", "yes"]})
    with pytest.raises(Refusal, match=r"^Got a plan of digest"):
        coordinated(other, to_all(parties_of(LOGISTIC, tmp_path)))


@pytest.mark.parametrize("other", ["plan", "party", "ledger"])
def test_the_name_of_a_run_belongs_to_one_plan_party_and_ledger(other, tmp_path):
    party = parties_of(RIDGE, tmp_path)["a"]
    party.answer("run", digest=party.digest, number=0)
    changed = {"plan": {"epsilon": 6.0}, "party": {}, "ledger": {"ledger": str(tmp_path / "l.db")}}
    estimator = DPFedRidge(**RIDGE.get_params(deep=False) | changed[other])
    label = "b" if other == "party" else "a"
    own = LABELS == label
    second = Party(
        estimator, X[own], Y[own], agent=label, agent_sizes=SIZES, journal=tmp_path / "a.db"
    )
    with pytest.raises(Refusal, match=r"^Got run 'run', which this journal has of another plan"):
        second.answer("run", digest=second.digest, number=0)
    assert len(Journal(tmp_path / "a.db", "run").all(MESSAGE)) == 1


def test_a_journal_that_was_reset_sends_no_second_message_where_there_is_a_ledger(tmp_path):
    party, kept = party_with_ledger(tmp_path), tmp_path / "a.db"
    first = party.answer("run", digest=party.digest, number=0)
    before = kept.read_bytes()
    party.answer("run", digest=party.digest, number=1, total=first)
    kept.write_bytes(before)
    with pytest.raises(Refusal, match=r"^Got request 1, whose message the ledger has"):
        party.answer("run", digest=party.digest, number=1, total=first)


def test_the_last_request_may_be_repeated(tmp_path):
    estimator = DPFedRidge(**RIDGE.get_params(deep=False) | {"ledger": str(tmp_path / "l.db")})
    asked = to_all(parties_of(estimator, tmp_path))
    coordinated(estimator, lambda request: [asked(request), asked(request)][1])


def test_ledgers_of_parties_count_each_run_once_and_before_it_sends(tmp_path):
    estimator = DPFedRidge(**RIDGE.get_params(deep=False))
    account = PrivacyLedger(tmp_path / "ledger.db")
    account.limit(6.0, 1e-4)
    parties = parties_of(estimator.set_params(ledger=str(tmp_path / "ledger.db")), tmp_path)
    asked = to_all({"a": parties["a"]})
    digest = parties["a"].digest
    for _ in range(2):
        first = asked({"digest": digest, "number": 0, "total": None})["a"]
    assert first is not None
    assert [entry["state"] for entry in account.entries()] == ["reserved"]
    with pytest.raises(PrivacyBudgetExceeded):
        parties["b"].answer("second", digest=digest, number=0)
    assert not Journal(tmp_path / "b.db", "second").all(MESSAGE)


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (
            lambda answers: {k: v for k, v in answers.items() if k != "b"},
            r"^Got no answer of \['b'\]",
        ),
        (lambda answers: answers | {"b": answers["b"] * np.nan}, r"^Got a message of 'b'"),
        (lambda answers: answers | {"b": answers["b"][:1]}, r"^Got a message of 'b'"),
        (lambda answers: answers | {"b": answers["b"].astype(object)}, r"^Got a message of 'b'"),
        (lambda answers: answers | {"b": None}, r"^Got a message of 'b'"),
    ],
)
def test_a_server_takes_nothing_but_messages_of_all(answer, match, tmp_path):
    asked = to_all(parties_of(RIDGE, tmp_path))
    with pytest.raises(ValueError, match=match):
        coordinated(RIDGE, lambda request: answer(asked(request)))


@pytest.mark.parametrize(
    "changed",
    [
        {"adversary": "sums"},
        {"privacy_unit": "agent"},
        {"participation": 0.5},
        {"dropout": 0.1},
        {"agent_column": 0},
        {"random_state": 0},
        {"epsilon": np.inf},
        {"algorithm": "averaged-admm"},
    ],
    ids=str,
)
def test_what_has_no_protocol_is_refused_before_anything_is_sent(changed, tmp_path):
    with pytest.raises(ValueError, match=r"^Got "):
        parties_of(DPFedRidge(**RIDGE.get_params(deep=False) | changed), tmp_path)


def test_columns_have_the_same_names_at_all_parties(tmp_path):
    names = ["x", "y", "z"]
    bounds = dict.fromkeys(names, (-1, 1))
    estimator = DPFedRidge(**RIDGE.get_params(deep=False) | {"feature_bounds": bounds})
    parties = parties_of(estimator, tmp_path, X=pd.DataFrame(X, columns=names))
    model = coordinated(estimator, to_all(parties), columns=names)
    assert list(model.feature_names_in_) == names
    with pytest.raises(ValueError, match="feature_bounds"):
        coordinated(estimator, to_all(parties), columns=["x", "y", "t"])


def test_neither_a_journal_nor_a_model_holds_rows(tmp_path):
    canary = np.float64(0.123456789123)
    rows = np.where(np.abs(X) < 2, X, 0.0)
    rows[0] = canary
    parties = parties_of(RIDGE, tmp_path, X=rows)
    coordinated(RIDGE, to_all(parties))
    kept = (tmp_path / "a.db").read_bytes() + pickle.dumps(parties["a"].model)
    assert canary.tobytes() not in kept


# Noise that pairs share.


def first_messages(parties, run):
    """What parties release first, after the random numbers that secrets are made of."""
    asked = {label: {"run": f"{run}", "digest": party.digest} for label, party in parties.items()}
    drawn = np.stack([parties[label].answer(number=0, **asked[label]) for label in SIZES])
    return [parties[label].answer(number=1, total=drawn, **asked[label]) for label in SIZES]


@pytest.mark.slow
def test_noise_of_pairs_hides_each_message_and_cancels_in_their_sum(tmp_path, silent):
    parties = parties_of(PAIRED, tmp_path)
    runs = np.array([first_messages(parties, run) for run in range(40)])
    np.testing.assert_allclose(runs.sum(axis=1), runs.sum(axis=1)[:1].repeat(40, 0), atol=1e-9)
    plan = PAIRED.plan(140, 3, agent_sizes=SIZES)
    # An agent has two pairs.
    std = plan.releases[0].agent_noise_std[0] * np.sqrt(2 * plan.facts.agents.edge_noise)
    # Keys are the system's own: a right amount of noise fails once in ten million times.
    noise = (runs - runs.mean(axis=0)).reshape(40, len(SIZES), -1) / std
    amount = chi2(39 * noise.shape[2]).cdf(np.square(noise).sum(axis=(0, 2)))
    assert np.all((1e-8 < amount) & (amount < 1 - 1e-8))


def secrets_of(party, numbers, folder, monkeypatch):
    """Secrets of a party for random numbers of all, by the place of the other end."""
    sources = []
    monkeypatch.setattr("skdpadmm.parties.KeyedNoise", lambda key: sources.append(key))
    journal = Journal(folder / "secrets.db", "run")
    journal.keep(MESSAGE, 0, numbers[party._place])
    journal.keep("sum", 0, numbers)
    _PartyGate(None, party.plan, None, 0, party=party, journal=journal)
    return dict(zip(party._keys, sources, strict=True))


def test_a_secret_follows_from_keys_places_agreement_and_numbers_of_both_ends(
    tmp_path, monkeypatch
):
    numbers = np.arange(24.0).reshape(3, 8)
    a, b, _ = parties_of(PAIRED, tmp_path).values()
    found = secrets_of(a, numbers, tmp_path, monkeypatch)
    (tmp_path / "secrets.db").unlink()
    assert found[1] == secrets_of(b, numbers, tmp_path, monkeypatch)[0]
    every = {found[1], found[2]}
    for change in ("first", "second", "key", "agreement", "same key for both"):
        (tmp_path / "secrets.db").unlink()
        changed, party = numbers.copy(), copy.copy(a)
        changed[0] += change == "first"
        changed[1] += change == "second"
        if change == "key":
            party._keys = {1: bytes(32), 2: bytes(32)}
        if change == "same key for both":
            party._keys = dict.fromkeys(a._keys, a._keys[1])
            changed[:] = numbers[0]
        if change == "agreement":
            party.digest = "another"
        one, two = secrets_of(party, changed, tmp_path, monkeypatch).values()
        assert one != two
        assert one not in every
        every |= {one, two}


def test_noise_of_pairs_is_new_in_every_message(tmp_path, silent, monkeypatch):
    streams = []
    original = KeyedNoise.add_gaussian

    def recorded(self, value, scale, stream):
        streams.append((self.key, stream))
        return original(self, value, scale, stream)

    monkeypatch.setattr(KeyedNoise, "add_gaussian", recorded)
    coordinated(PAIRED, to_all(parties_of(PAIRED, tmp_path)))
    # Both ends of three pairs draw each of them once.
    n_messages = sum(release.times for release in PAIRED.plan(140, 3, agent_sizes=SIZES).releases)
    assert Counter(Counter(streams).values()) == {2: 3 * n_messages}


def test_secrets_are_new_in_every_run_and_known_to_both_ends_alone(tmp_path, monkeypatch):
    sources = []

    def recorded(key):
        sources.append(key)
        return KeyedNoise(key)

    monkeypatch.setattr("skdpadmm.parties.KeyedNoise", recorded)
    for run in ("first", "second"):
        coordinated(PAIRED, to_all(parties_of(PAIRED, tmp_path), run=run))
    # Three pairs, two runs.
    assert len(set(sources)) == 6
    kept = b"".join((tmp_path / f"{label}.db").read_bytes() for label in SIZES)
    assert not any(key in kept for key in sources)


def test_a_run_that_begins_anew_without_its_journal_has_new_secrets(tmp_path):
    party = parties_of(PAIRED, tmp_path)["a"]
    first = party.answer("run", digest=party.digest, number=0)
    (tmp_path / "a.db").unlink()
    assert not np.array_equal(first, party.answer("run", digest=party.digest, number=0))


def test_a_server_that_changes_a_random_number_gets_no_message(tmp_path):
    party = parties_of(PAIRED, tmp_path)["a"]
    own = party.answer("run", digest=party.digest, number=0)
    drawn = np.stack([own + 1, own, own])
    with pytest.raises(Refusal, match=r"^Got another random number"):
        party.answer("run", digest=party.digest, number=1, total=drawn)
    assert len(Journal(tmp_path / "a.db", "run").all(MESSAGE)) == 1


@pytest.mark.parametrize(
    "changed", [{"private_key": None}, {"public_keys": None}, {"public_keys": {"a": "00" * 32}}]
)
def test_pairs_need_the_keys_of_all_parties(changed, tmp_path):
    facts = {"agent": "a", "agent_sizes": SIZES, "journal": tmp_path / "a.db"}
    facts |= {"private_key": KEYS[0] / "a", "public_keys": KEYS[1]}
    own, estimator = LABELS == "a", with_ledger(PAIRED, tmp_path / "l.db")
    with pytest.raises(ValueError, match=r"^Got edge_noise="):
        Party(estimator, X[own], Y[own], **facts | changed)
    with pytest.raises(ValueError, match=r"^Got a private key of another party"):
        Party(estimator, X[own], Y[own], **facts | {"private_key": KEYS[0] / "b"})


def test_noise_of_pairs_is_never_sent_twice(tmp_path):
    """A journal that is restored repeats it, which only a ledger notices."""
    facts = {"agent": "a", "agent_sizes": SIZES, "journal": tmp_path / "a.db"}
    facts |= {"private_key": KEYS[0] / "a", "public_keys": KEYS[1]}
    own = LABELS == "a"
    for estimator in (PAIRED, STATES, LOGISTIC, MULTINOMIAL):
        if estimator.plan(140, 3, agent_sizes=SIZES).facts.agents.edge_noise:
            with pytest.raises(ValueError, match=r"^Got ledger=None where pairs share noise"):
                Party(estimator, X[own], targets(estimator)[own], **facts)
    party, kept = parties_of(PAIRED, tmp_path)["a"], tmp_path / "a.db"
    request = {"digest": party.digest}
    drawn = np.stack([party.answer("run", number=0, **request)] * 3)
    before = kept.read_bytes()
    party.answer("run", number=1, total=drawn, **request)
    kept.write_bytes(before)
    with pytest.raises(Refusal, match=r"^Got request 1, whose message the ledger has"):
        party.answer("run", number=1, total=drawn, **request)


def test_what_a_party_keeps_is_for_its_owner_alone(tmp_path):
    (tmp_path / "shared").touch(0o640)
    open_to_all = os.umask(0)
    try:
        for journal in ("a.db", "shared"):
            party = party_with_ledger(tmp_path, journal)
            party.answer("run", digest=party.digest, number=0)
    finally:
        os.umask(open_to_all)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("a.db", "a.ledger", "shared")]
    # Who made a file before decides who reads it.
    assert modes == [0o600, 0o600, 0o640]


def test_another_public_key_is_another_agreement(tmp_path):
    swapped = KEYS[1] | {"b": KEYS[1]["c"], "c": KEYS[1]["b"]}
    party = parties_of(PAIRED, tmp_path)["a"]
    facts = {"agent_sizes": SIZES, "columns": 3, "public_keys": swapped}
    with pytest.raises(Refusal, match=r"^Got a plan of digest"):
        coordinate(PAIRED, to_all({"a": party}), **facts)


def test_private_keys_are_files_for_their_owner_alone():
    assert all((KEYS[0] / label).stat().st_mode & 0o077 == 0 for label in SIZES)
