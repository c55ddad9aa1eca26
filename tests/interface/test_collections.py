"""Collections of dask: the same model as of arrays, and no row leaves its worker."""

import io
import math
import os
import pickle
import signal
import tracemalloc
from contextlib import contextmanager

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from distributed.comm import tcp
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.pipeline import make_pipeline

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge, DPFedRidge, _fitting
from skdpadmm.algorithms import CoordinateDescent, FederatedADMM, GradientDescent
from skdpadmm.engine import ChunkParts
from skdpadmm.ledger import PrivacyLedger
from skdpadmm.preprocessing import PublicTableTransformer, Range
from skdpadmm.records._coordinates import MOMENT_ENTRIES
from tests.interface.registry import ROWS, parameters

pytestmark = pytest.mark.slow
N, P = 3000, 6


@pytest.fixture(scope="module")
def in_process():
    """Workers that are threads of this process."""
    options = {"n_workers": 2, "threads_per_worker": 2, "dashboard_address": "127.0.0.1:0"}
    with Client(processes=False, set_as_default=False, **options) as client:
        yield client


@pytest.fixture
def workers(in_process):
    with in_process.as_current():
        yield in_process


@pytest.fixture(params=["workers", "file"])
def place(request):
    """Chunks with workers, or in a file that is mapped."""
    if request.param == "workers":
        request.getfixturevalue("workers")
    return request.param


def data(name, n=N, p=P):
    X, y = ROWS[name].data(n=n, p=p)
    classes = {"classes": np.unique(y).tolist()} if is_classifier(ROWS[name].estimator) else {}
    return X, y, ROWS[name].make(**classes)


def in_chunks(*arrays, size=700):
    return [da.from_array(each, chunks=(size, *each.shape[1:])) for each in arrays]


def assert_same_fit(model, reference):
    np.testing.assert_allclose(parameters(model), parameters(reference), rtol=1e-10, atol=1e-12)
    assert model.privacy_ == reference.privacy_
    assert sorted(vars(model)) == sorted(vars(reference))


NAMES = [
    "ridge", "lasso", "fused", "huber", "linear svc", "three hinges", "logistic", "multinomial",
    "fed ridge", "fed elastic net", "fed logistic", "path of gradients",
]  # fmt: skip


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize("name", NAMES)
def test_a_fit_of_chunks_is_the_fit_of_all_rows(name, epsilon, place):
    X, y, model = data(name)
    model.set_params(epsilon=epsilon)
    assert_same_fit(clone(model).fit(*in_chunks(X, y)), clone(model).fit(X, y))


KNOBS = {
    "declared": {"feature_bounds": (-1, 1), "target_bounds": (-5, 5), "conditioning": "private"},
    "private scale": {"scale": "private", "epsilon": 50.0},
    "row norm": {"row_norm": 1.0, "conditioning": None},
    "no intercept": {"fit_intercept": False, "epsilon": math.inf},
    "coordinates": {"algorithm": CoordinateDescent()},
    "gradients without noise": {"algorithm": GradientDescent(trace=True), "epsilon": math.inf},
}


@pytest.mark.parametrize("knobs", KNOBS)
def test_knobs_mean_the_same_of_chunks(knobs, workers):
    X, y, model = data("ridge")
    model.set_params(**KNOBS[knobs])
    assert_same_fit(clone(model).fit(*in_chunks(30 * X, y)), clone(model).fit(30 * X, y))


def test_bits_depend_on_the_chunks_and_not_on_the_workers(in_process):
    X, y, model = data("logistic")
    found = []
    for n_workers in (1, 2, 3):
        options = {"threads_per_worker": n_workers, "dashboard_address": "127.0.0.1:0"}
        with Client(processes=False, n_workers=n_workers, set_as_default=False, **options) as own:
            with own.as_current():
                found.append(parameters(clone(model).set_params(epsilon=math.inf).fit(
                    *in_chunks(X, y, size=200)
                )))  # fmt: skip
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


# Kinds of chunks.


@pytest.mark.parametrize("kind", ["float32", "sparse", "columns", "unknown sizes", "no rows"])
def test_chunks_of_any_kind(kind, place):
    X, y, model = data("ridge")
    X, (dX, dy) = X.astype(np.float32), in_chunks(X.astype(np.float32), y)
    if kind == "sparse":
        dX = dX.map_blocks(sparse.csr_matrix)
    elif kind == "columns":
        dX, dy = dX.rechunk((900, 2)), dy.rechunk(400)
    elif kind == "unknown sizes":
        dX, dy = dX[dy > -1], dy[dy > -1]
        assert math.isnan(dX.shape[0])
    elif kind == "no rows":
        first = np.r_[np.full(700, 9.0), y[700:]]
        keep = in_chunks(first)[0] < 9
        dX, dy = dX[keep], dy[keep]
    keep = {"unknown sizes": y > -1, "no rows": np.arange(N) >= 700}.get(kind, slice(None))
    assert_same_fit(clone(model).fit(dX, dy), clone(model).fit(X[keep], y[keep]))


def frame():
    X, y, _ = data("fed ridge")
    table = pd.DataFrame(X, columns=list("abcdef"))
    table["hospital"] = np.array(["east", "north", "south"])[np.arange(N) % 3]
    return table.assign(y=y)


def test_a_dataframe_keeps_names_and_owners(place):
    dd = pytest.importorskip("dask.dataframe")
    table = frame()
    lazy = dd.from_pandas(table, npartitions=4)
    bounds = {"feature_bounds": {"b": (-1, 1), "a": (-1, 1)}}
    for model, columns in (
        (ROWS["fed ridge"].make(agent_column="hospital", **bounds), [*"abcdef", "hospital"]),
        (ROWS["ridge"].make(**bounds), list("abcdef")),
    ):
        reference = clone(model).fit(table[columns], table["y"])
        model.fit(lazy[columns], lazy["y"])
        assert_same_fit(model, reference)
        assert model.feature_names_in_.tolist() == columns
        predicted = model.predict(lazy[columns])
        assert dask.is_dask_collection(predicted)
        np.testing.assert_allclose(predicted.compute(), model.predict(table[columns]))


@pytest.mark.parametrize("knobs", [{}, {"participation": 0.6}, {"dropout": 0.2}])
def test_agents_of_rows_in_chunks(knobs, place):
    X, y, model = data("fed ridge")
    agents = np.arange(N) // 100 % 7
    model.set_params(**knobs)
    reference = clone(model).fit(X, y, agents=agents)
    model.fit(*in_chunks(X, y), agents=in_chunks(agents)[0])
    assert_same_fit(model, reference)
    assert model.agent_labels_.tolist() == list(range(7))


# What leaves the workers.


class Arrays(cloudpickle.Pickler):
    """All arrays of numbers inside of what is sent."""

    def reducer_override(self, value):
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            self.arrays.append(value)
        return super().reducer_override(value)

    @classmethod
    def inside(cls, value):
        pickler = cls(io.BytesIO())
        pickler.arrays = []
        pickler.dump(value)
        return pickler.arrays


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize("name", ["ridge", "multinomial", "fed ridge"])
def test_no_row_and_no_vector_over_rows_crosses_the_network(name, epsilon, workers, monkeypatch):
    X, y, model = data(name)
    marked, canary = X.copy(), 0.8641975308642
    marked[::3] = canary
    messages, call, replies = [], ChunkParts._call, []

    def heard(self, method, args, *, adds):
        messages.append(args)
        replies.append(call(self, method, args, adds=adds))
        return replies[-1]

    monkeypatch.setattr(ChunkParts, "_call", heard)
    agents = {"agents": in_chunks(np.arange(N) % 4, size=750)[0]} if name == "fed ridge" else {}
    model.set_params(epsilon=epsilon, max_iter=4).fit(*in_chunks(marked, y, size=750), **agents)
    assert len(messages) > 4
    for sent in (*messages, *replies):
        arrays = Arrays.inside(sent)
        assert all(max(array.shape, default=0) < 750 for array in arrays)
        # Without privacy columns have their extremes, which are entries of rows.
        if epsilon == 1.0:
            assert not any((np.abs(array - canary) < 1e-9).any() for array in arrays)


@pytest.mark.parametrize("name", ["logistic", "fed ridge"])
def test_what_arrives_at_the_client_and_the_scheduler_has_no_row(
    name, client, all_answer, monkeypatch
):
    all_answer()
    _, _, model = data(name)
    n, p, read, arrived = 100_000, 25, tcp.read_bytes_rw, []

    async def heard(stream, n):
        found = await read(stream, n)
        arrived.append(bytes(found))
        return found

    def rows(block_info=None):
        (low, high), _ = block_info[None]["array-location"]
        return np.random.default_rng(low).uniform(-1, 1, size=(high - low, p))

    with client.as_current():
        X = da.map_blocks(rows, chunks=((12_500,) * 8, (p,)), dtype=float)
        y = (X[:, 0] > 0) * 1.0
        monkeypatch.setattr(tcp, "read_bytes_rw", heard)
        model.fit(X, y)
        monkeypatch.undo()
    everything = b"".join(arrived)
    # Validation, conditioning and all rounds together, beside 20 MB of rows.
    assert 10_000 < len(everything) < n * 8 / 2 < n * p * 8
    for low in range(0, n, 12_500):
        entries = np.random.default_rng(low).uniform(-1, 1, size=(50, p))
        assert not any(entry.tobytes() in everything for entry in entries.ravel())


def test_the_seed_and_the_ledger_stay_with_the_client(workers, tmp_path, monkeypatch):
    X, y, model = data("ridge")
    seen, call = [], ChunkParts._call

    def heard(self, method, args, *, adds):
        seen.extend(each for each in args if isinstance(each, DPAdmmRidge))
        return call(self, method, args, adds=adds)

    monkeypatch.setattr(ChunkParts, "_call", heard)
    model.set_params(random_state=11, ledger=str(tmp_path / "a.db")).fit(*in_chunks(X, y))
    assert [(each.random_state, each.ledger) for each in seen] == [(None, None)]


# What goes wrong.


def broken(kind):
    """Chunks of which the third is wrong."""
    X, y, _ = data("ridge")
    dX, dy = in_chunks(X, y)

    def change(chunk, block_info=None):
        if block_info[0]["chunk-location"][0] != 2:
            return chunk
        other = {"width": chunk[:, :-1], "text": np.full(chunk.shape, "a", dtype=object)}
        return other.get(kind, np.where(chunk > 0.5, np.nan, chunk))

    return dX.map_blocks(change, dtype=float, meta=np.zeros((0, 0))), dy


WRONG = {
    "nan": "Input X contains NaN, expected finite numbers",
    "width": r"Got chunks of X with \[5, 6\] columns or other names, expected the same columns",
    "text": "Got text, expected numbers",
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_chunk_that_is_wrong_is_one_sentence_and_stores_nothing(kind, place, tmp_path):
    _, _, model = data("ridge")
    model.set_params(ledger=str(tmp_path / "study.db"))
    before = dict(vars(model))
    with pytest.raises(ValueError, match=WRONG[kind]):
        model.fit(*broken(kind))
    assert vars(model) == before
    assert not (tmp_path / "study.db").exists()


def test_refusals_say_what_to_do_instead(place):
    X, y, model = data("ridge")
    dX, dy = in_chunks(X, y)
    with pytest.raises(ValueError, match=r"Got y as a ndarray .* Convert it"):
        model.fit(dX, y)
    with pytest.raises(ValueError, match="Got X as a ndarray"):
        model.fit(X, dy)
    with pytest.raises(ValueError, match=r"Got \{'X': 5, 'y': 2\} chunks"):
        model.fit(dX[dy > -1], dy.rechunk(2000)[in_chunks(y, size=2000)[0] > -1])
    with pytest.raises(ValueError, match=r"with classes=None, expected every class"):
        DPAdmmLogisticRegression().fit(dX, dy > 0)
    with pytest.raises(ValueError, match=r"Got a collection of dask for a stream"):
        ROWS["stream"].make().fit(dX, dy)
    with pytest.raises(ValueError, match="not among classes"):
        DPAdmmLogisticRegression(classes=[0, 1]).fit(dX, (dy > 0) + 1)


REFUSED = {
    "all rows at once": ("perturbed objective", {}, "ObjectivePerturbation.* an algorithm of sums"),
    "batches": (
        "ridge",
        {"algorithm": GradientDescent(schedule="cyclic")},
        "algorithm of sums",
    ),
    "secret batches": (
        "ridge",
        {"algorithm": GradientDescent(batch_fraction=0.5)},
        "algorithm of sums",
    ),
    "graph": ("network", {}, "algorithm of sums"),
    "shares": ("fed sharing", {}, "algorithm of sums"),
    "whole agents": ("fed ridge", {"privacy_unit": "agent"}, "agents as the unit, whose rows"),
    "made-up absentees": (
        "fed ridge",
        {"participation": 0.5},
        "miss rounds: pass agents",
    ),
    "sorted": ("fed ridge", {"partition": "sorted"}, "partition='sorted', which reads all targets"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_needs_all_rows_in_one_place_is_refused_with_workers_and_works_from_a_file(
    case, place, tmp_path
):
    name, knobs, words = REFUSED[case]
    X, y, model = data(name)
    model.set_params(**knobs)
    if place == "file":
        assert_same_fit(clone(model).fit(*in_chunks(X, y)), clone(model).fit(X, y))
        return
    model.set_params(ledger=str(tmp_path / "study.db"))
    with pytest.raises(ValueError, match=words):
        model.fit(*in_chunks(X, y))
    assert not (tmp_path / "study.db").exists()


def test_weights_are_refused_with_workers_and_work_from_a_file(place):
    X, y, model = data("ridge")
    model.set_params(max_weight=2.0)
    dX, dy, weights = in_chunks(X, y, np.arange(N) % 3)
    if place == "workers":
        for given in ({}, {"sample_weight": weights}):
            with pytest.raises(ValueError, match="or of chunks on workers, expected neither"):
                model.fit(dX, dy, **given)
    else:
        reference = clone(model).fit(X, y, sample_weight=np.arange(N) % 3)
        assert_same_fit(clone(model).fit(dX, dy, sample_weight=weights), reference)


def test_persons_are_refused_with_workers_and_work_from_a_file(place):
    X, y, model = data("ridge")
    model.set_params(max_rows_per_person=2)
    dX, dy, persons = in_chunks(X, y, np.arange(N) // 2)
    if place == "workers":
        with pytest.raises(ValueError, match="with persons, whose rows may be in several"):
            model.fit(dX, dy, persons=persons)
    else:
        reference = clone(model).fit(X, y, persons=np.arange(N) // 2)
        assert_same_fit(clone(model).fit(dX, dy, persons=persons), reference)


def test_a_worker_that_dies_in_mid_fit_is_an_error_that_stores_nothing_and_counts(
    client, all_answer, monkeypatch, tmp_path
):
    all_answer()
    X, y, model = data("ridge")
    model.set_params(max_iter=20)
    before, rounds = dict(vars(model.fit(X, y))), []

    @contextmanager
    def kill_a_worker(estimator, plan):
        def progress(done):
            rounds.append(done)
            if done == 3:
                # One that has chunks: dask may place all of them on one worker.
                held = client.run(lambda dask_worker: len(dask_worker.state.actors))
                pids = client.run(os.getpid, workers=[max(held, key=held.get)])
                os.kill(*pids.values(), signal.SIGKILL)

        yield progress

    monkeypatch.setattr(_fitting, "_progress", kill_a_worker)
    ledger = str(tmp_path / "study.db")
    with client.as_current():
        with pytest.raises(RuntimeError, match=r"dask worker that died in round .* Nothing was st"):
            model.set_params(ledger=ledger).fit(*in_chunks(X, y))
    assert 3 <= len(rounds) < 20
    assert vars(model) == before | {"ledger": ledger}
    assert len(PrivacyLedger(ledger).entries()) == 1
    all_answer()


# Predictions and transformers.


def test_predictions_of_collections_are_lazy(place):
    X, y, model = data("multinomial")
    dX = in_chunks(X)[0].rechunk((900, 4))
    model.fit(*in_chunks(X, y))
    for name in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        lazy = getattr(model, name)(dX)
        assert dask.is_dask_collection(lazy)
        assert lazy.chunks[0] == dX.chunks[0]
        np.testing.assert_allclose(lazy.compute(), getattr(model, name)(X))
    two = ROWS["logistic"].make(classes=[0, 1]).fit(X, y > 0)
    assert two.predict(dX).compute().shape == two.decision_function(dX).compute().shape == (N,)
    with pytest.raises(ValueError, match="features"):
        model.predict(dX[:, :3])


def test_a_table_is_mapped_chunk_by_chunk_in_a_pipeline(place):
    dd = pytest.importorskip("dask.dataframe")
    table = frame()
    lazy = dd.from_pandas(table, npartitions=3)
    schema = {"a": (-1, 1), "b": Range(-1, 1, missing="middle"), "hospital": ["east", "north"]}
    transformer = PublicTableTransformer(schema)
    mapped = transformer.fit_transform(lazy)
    assert dask.is_dask_collection(mapped)
    np.testing.assert_array_equal(mapped.compute(), transformer.transform(table))
    model = DPAdmmRidge(feature_bounds=(-1, 1), random_state=0)
    pipeline = make_pipeline(transformer, model)
    reference = clone(pipeline).fit(table, table["y"])
    pipeline.fit(lazy, lazy["y"])
    assert_same_fit(pipeline[-1], reference[-1])
    np.testing.assert_allclose(pipeline.predict(lazy).compute(), pipeline.predict(table))


def test_fitted_models_hold_nothing_of_a_cluster(place):
    X, y, model = data("fed ridge")
    model.set_params(algorithm=FederatedADMM(trace=True)).fit(*in_chunks(X, y))
    assert len(pickle.dumps(model)) < 100_000
    assert isinstance(pickle.loads(pickle.dumps(model)), DPFedRidge)


# A file on this machine.


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
@pytest.mark.parametrize("name", ["ridge", "logistic", "fed ridge"])
def test_a_memory_map_is_never_copied_as_a_whole(name, epsilon, tmp_path):
    X, y, model = data(name, n=200_000, p=40)
    model.set_params(epsilon=epsilon, max_iter=3)
    stored = np.memmap(tmp_path / "rows", dtype=np.float64, mode="w+", shape=X.shape)
    stored[:] = X
    reference = clone(model).fit(X, y)
    tracemalloc.start()
    mapped = clone(model).fit(np.memmap(tmp_path / "rows", mode="r", shape=X.shape, dtype=float), y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert_same_fit(mapped, reference)
    # Some vectors over rows and blocks of a fixed size, of which those of moments are the largest.
    assert peak < 15 * y.nbytes + (4 * 8 * MOMENT_ENTRIES if math.isinf(epsilon) else 2**25)


@pytest.mark.parametrize("epsilon", [3.0, math.inf])
@pytest.mark.parametrize(
    ("name", "algorithm"), [("ridge", "consensus-admm"), ("fed ridge", "federated-admm")]
)
def test_intervals_from_chunks_are_those_of_one_array(name, algorithm, epsilon, place):
    X, y, model = data(name)
    model.set_params(epsilon=epsilon, intervals=True, feature_bounds=(-1, 1), random_state=0)
    model.set_params(target_bounds=(-9, 9), algorithm=algorithm)
    whole = clone(model).fit(X, y).inference_
    found = model.fit(*in_chunks(X, y)).inference_
    np.testing.assert_allclose(found.estimate, whole.estimate, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.covariance, whole.covariance, rtol=1e-6)
