"""Rows that outgrow a process: chunks in two workers of dask, a mapped file, and parquet.

    python benchmarks/large_data.py                20,000,000 x 50 and files of 10 GB, half an hour
    python benchmarks/large_data.py --quick        small, for a look: no verdict
    python benchmarks/large_data.py chunks files   parts of it: chunks, files, peers

*chunks*: float32 in two workers with a limit of 4 GB each, made where they are. A round is the
difference between a long and a short fit, over the difference of their rounds. It stands beside a
round of the same fit in one process that holds all rows, with as many threads. Bytes are those of
all arguments and replies as `ChunkParts` counts them. Memory of the client, which runs the
scheduler as well, is the peak of its resident set.

*files*: ten iterations over float32 in a memory map and in parquet, in a process that may allocate
4 GB (RLIMIT_DATA; pages of a mapped file can be dropped at any time and do not count). Beside it
stands the time of reading the file ten times.

*peers*: dask-ml's LogisticRegression(solver="admm") where it is installed, on the same chunks.
Nothing printed here depends on the values in the data, but for the accuracies of *peers*.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.engine import ChunkParts

N_WORKERS, LIMIT = 2, 4 * 10**9
CLIENT_BAR, ROUND_BAR = 500.0, 1.5
ROUNDS = (2, 12)
PUBLIC: dict[str, Any] = {"feature_bounds": (-1, 1), "delta": 1e-9, "random_state": 0}
KINDS = ("ridge", "logistic")


def make_rows(first: int, n: int, p: int) -> NDArray[np.float32]:
    """Rows of a chunk, which its place alone decides."""
    rng = np.random.default_rng([0, first])
    return 2 * rng.random((n, p), dtype=np.float32) - 1


def make_targets(kind: str, X: NDArray[np.float32], first: int) -> NDArray[np.float32]:
    """Targets of rows."""
    scores = X @ np.linspace(-1, 1, X.shape[1], dtype=np.float32)
    scores += np.random.default_rng([1, first]).normal(size=len(X)).astype(np.float32)
    return scores if kind == "ridge" else (scores > 0).astype(np.float32)


def model_of(kind: str, n_rounds: int, **more: Any) -> Any:
    if kind == "ridge":
        return DPAdmmRidge(target_bounds=(-10, 10), max_iter=n_rounds, **PUBLIC | more)
    return DPAdmmLogisticRegression(classes=[0, 1], max_iter=n_rounds, **PUBLIC | more)


def peak() -> float:
    """Peak of the resident set of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed_fit(kind: str, n_rounds: int, X: Any, y: Any, **more: Any) -> float:
    start = time.perf_counter()
    model_of(kind, n_rounds, **more).fit(X, y)
    return time.perf_counter() - start


def a_round(kind: str, X: Any, y: Any, repeats: int, **more: Any) -> float:
    """Seconds of a round: the least of some differences."""
    few, many = ROUNDS
    found = []
    for _ in range(repeats):
        short, long = (timed_fit(kind, n, X, y, **more) for n in ROUNDS)
        found.append((long - short) / (many - few))
    return min(found)


# Chunks.


def chunked(n: int, p: int, size: int, kind: str) -> tuple[Any, Any]:
    """Lazy rows and targets in chunks."""
    import dask.array as da

    sizes = tuple(min(size, n - first) for first in range(0, n, size))

    def rows(block_info: Any = None) -> Any:
        (low, high), _ = block_info[None]["array-location"]
        return make_rows(low, high - low, p)

    def targets(chunk: Any, block_info: Any = None) -> Any:
        return make_targets(kind, chunk, block_info[0]["array-location"][0][0])

    X = da.map_blocks(rows, chunks=(sizes, (p,)), dtype=np.float32)
    return X, X.map_blocks(targets, drop_axis=1, dtype=np.float32)


@contextmanager
def cluster(limit: int) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=N_WORKERS,
            threads_per_worker=1,
            memory_limit=limit,
            dashboard_address="127.0.0.1:0",
        ) as made,
        Client(made) as client,
    ):
        yield client


@contextmanager
def counted() -> Iterator[list[ChunkParts]]:
    """The parts of all fits, which count bytes."""
    made: list[ChunkParts] = []
    start = ChunkParts.__init__

    def kept(self: ChunkParts, *args: Any) -> None:
        start(self, *args)
        made.append(self)

    ChunkParts.__init__ = kept  # type: ignore[method-assign]
    try:
        yield made
    finally:
        ChunkParts.__init__ = start  # type: ignore[method-assign]


def in_chunks(n: int, p: int, size: int, repeats: int) -> dict[str, Any]:
    """What rounds and a default fit cost where chunks are with workers."""
    from distributed import wait

    found: dict[str, Any] = {}
    with cluster(LIMIT) as client:
        for kind in KINDS:
            X, y = (each.persist() for each in chunked(n, p, size, kind))
            wait([X, y])
            with counted() as parts:
                found[kind] = {"round": a_round(kind, X, y, repeats)}
                few, many = (made.bytes_sent for made in parts[:2])
                found[kind]["bytes"] = (many - few) / (ROUNDS[1] - ROUNDS[0])
            found[kind]["fit"] = timed_fit(kind, 100, X, y)
            found[kind]["worker"] = max(
                client.run(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss).values()
            )
            del X, y
            gc.collect()
            time.sleep(2)  # until workers have heard of it
    found["client"] = peak()
    return found


def in_one_process(n: int, p: int, size: int, repeats: int) -> dict[str, Any]:
    """What rounds cost where all rows are in one process with as many threads."""
    X = np.empty((n, p), dtype=np.float32)
    for first in range(0, n, size):
        X[first : first + size] = make_rows(first, min(size, n - first), p)
    found = {}
    for kind in KINDS:
        firsts = range(0, n, size)
        y = np.concatenate([make_targets(kind, X[first : first + size], first) for first in firsts])
        found[kind] = {"round": a_round(kind, X, y, repeats, n_jobs=N_WORKERS)}
    return found


def show_chunks(n: int, p: int, size: int, repeats: int, *, quick: bool) -> None:
    chunks = apart("in_chunks", n, p, size, repeats)
    local = apart("in_one_process", n, p, size, repeats)
    n_chunks = -(-n // size)
    print(f"\n{n:,} x {p} float32 in {n_chunks} chunks, {N_WORKERS} workers of {LIMIT / 1e9:g} GB")
    print(f"{'':9} {'round [s]':>10} {'local [s]':>10} {'ratio':>6} {'bytes':>9} {'fit [s]':>8}")
    for kind in KINDS:
        own, alone = chunks[kind], local[kind]["round"]
        ratio = own["round"] / alone
        verdict = "" if quick else "  pass" if ratio <= ROUND_BAR else "  MISS"
        print(
            f"{kind:9} {own['round']:10.3f} {alone:10.3f} {ratio:6.2f} {own['bytes']:9,.0f}"
            f" {own['fit']:8.1f}{verdict}"
        )
    verdict = "" if quick else "  pass" if chunks["client"] <= CLIENT_BAR else "  MISS"
    worker = max(chunks[kind]["worker"] for kind in KINDS) / 1024
    print(f"peak memory: client {chunks['client']:.0f} MB{verdict}, a worker {worker:.0f} MB")


def apart(name: str, *args: Any, limit: int = 0) -> Any:
    """What a function of this module returns in a process of its own, which may have a limit."""
    call = json.dumps([name, args, limit])
    command = [sys.executable, __file__, "--call", call]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


# Files.


def write_files(folder: str, n: int, p: int, size: int) -> None:
    """The same rows as a file of floats and as parquet, and their targets."""
    import pyarrow as pa
    from pyarrow import parquet

    names = [f"x{j}" for j in range(p)]
    schema = pa.schema([(name, pa.float32()) for name in [*names, "y"]])
    targets = []
    (Path(folder) / "parquet").mkdir()
    with (Path(folder) / "rows").open("wb") as file:
        for part, first in enumerate(range(0, n, size)):
            X = make_rows(first, min(size, n - first), p)
            targets.append(make_targets("logistic", X, first))
            X.tofile(file)
            columns = [*(pa.array(np.ascontiguousarray(c)) for c in X.T), pa.array(targets[-1])]
            table = pa.Table.from_arrays(columns, schema=schema)
            path = Path(folder) / "parquet" / f"part-{part:05d}.parquet"
            parquet.write_table(table, path, compression="zstd")
    np.save(Path(folder) / "targets.npy", np.concatenate(targets))


@contextmanager
def watched() -> Iterator[dict[str, float]]:
    """Peak of the resident memory that is no part of a file, in MB."""
    found, done = {"peak": 0.0}, threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            status = Path("/proc/self/status").read_text()
            now = int(status.split("RssAnon:")[1].split()[0]) / 1024
            found["peak"] = max(found["peak"], now)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def read_ten_times(folder: str, n: int, p: int) -> dict[str, float]:
    buffer, start = bytearray(2**24), time.perf_counter()
    for _ in range(10):
        with (Path(folder) / "rows").open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return {"seconds": time.perf_counter() - start}


def from_map(folder: str, n: int, p: int) -> dict[str, float]:
    X = np.memmap(Path(folder) / "rows", dtype=np.float32, mode="r", shape=(n, p))
    y = np.load(Path(folder) / "targets.npy")
    with watched() as memory:
        seconds = timed_fit("logistic", 10, X, y, n_jobs=N_WORKERS)
    return memory | {"seconds": seconds}


def from_parquet(folder: str, n: int, p: int) -> dict[str, float]:
    import dask.dataframe as dd

    table = dd.read_parquet(str(Path(folder) / "parquet"))
    X, y = table[[f"x{j}" for j in range(p)]], table["y"]
    with watched() as memory:
        seconds = timed_fit("logistic", 10, X, y, n_jobs=N_WORKERS)
    return memory | {"seconds": seconds}


def show_files(n: int, p: int, size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder, n, p, size)
        gigabytes = n * p * 4 / 1e9
        print(f"\n{n:,} x {p} float32, {gigabytes:.2f} GB; ten iterations of logistic regression")
        print(f"{'':24} {'seconds':>8} {'allocated [MB]':>15}")
        read = apart("read_ten_times", folder, n, p)
        print(f"{'reading it ten times':24} {read['seconds']:8.1f}")
        for name, call in (("memory map", "from_map"), ("parquet, through dask", "from_parquet")):
            found = apart(call, folder, n, p, limit=LIMIT)
            print(f"{name:24} {found['seconds']:8.1f} {found['peak']:15.0f}", flush=True)


# Peers.


def show_peers(n: int, p: int, size: int) -> None:
    from distributed import wait

    held_out = make_rows(n, 100_000, p)
    labels = make_targets("logistic", held_out, n)
    print(f"\n{n:,} x {p} float32 in chunks of {size:,}, {N_WORKERS} workers")
    print(f"{'':34} {'seconds':>8} {'accuracy':>9}")
    with cluster(LIMIT):
        X, y = (each.persist() for each in chunked(n, p, size, "logistic"))
        wait([X, y])
        models: dict[str, Any] = {
            "without privacy": model_of("logistic", 100, epsilon=float("inf"), random_state=None),
            "epsilon=1": model_of("logistic", 100),
        }
        try:
            from dask_ml.linear_model import LogisticRegression

            models["dask-ml, admm"] = LogisticRegression(solver="admm", max_iter=100)
        except ImportError as error:
            print(f"dask-ml is not measured: {error}")
        for name, model in models.items():
            start = time.perf_counter()
            model.fit(X, y)
            seconds = time.perf_counter() - start
            accuracy = float(np.mean(np.asarray(model.predict(held_out)) == labels))
            print(f"{name:34} {seconds:8.1f} {accuracy:9.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", default=["chunks", "files", "peers"])
    parser.add_argument("--quick", action="store_true", help="small data, no verdict")
    parser.add_argument("--repeats", type=int, default=3, help="differences, of which the least")
    parser.add_argument("--call", help=argparse.SUPPRESS)
    options = parser.parse_args()
    # A small delta and few rows: of no importance here.
    warnings.simplefilter("ignore", UserWarning)
    if options.call:
        name, args, limit = json.loads(options.call)
        if limit:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        print(json.dumps(globals()[name](*args)))
        return
    quick = options.quick
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start", flush=True)
    if "chunks" in options.parts:
        size = (60_000, 20, 10_000) if quick else (20_000_000, 50, 250_000)
        show_chunks(*size, 1 if quick else options.repeats, quick=quick)
    if "files" in options.parts:
        show_files(*((60_000, 20, 10_000) if quick else (25_000_000, 100, 250_000)))
    if "peers" in options.parts:
        show_peers(*((60_000, 20, 10_000) if quick else (4_000_000, 50, 250_000)))


if __name__ == "__main__":
    main()
