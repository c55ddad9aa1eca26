"""Run a server and three hospitals as processes of one machine, and show what they agreed on.

On several machines each process is started where its rows are, with certificates in place of
--insecure (see Flower's guides to TLS and to the authentication of SuperNodes).
"""

import os
import pickle
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sklearn.datasets import load_breast_cancer

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
HOST = "127.0.0.1"


def free_ports(number):
    """Ports that nobody listens at."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]


def listens(port):
    """Whether the server takes connections."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def main():
    """Start the processes, run the app, and print the report."""
    sys.path.insert(0, str(HERE))
    from hospitals import SIZES

    port, *others = free_ports(1 + len(SIZES))
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    with TemporaryDirectory() as folder, ExitStack() as stack:
        home = Path(folder)
        env = os.environ | {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0"}
        env["PATH"] = f"{BIN}{os.pathsep}{env['PATH']}"
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{HOST}:{port}"\n'
            "insecure = true\n"
        )

        def start(*command):
            log = stack.enter_context(open(home / f"{len(list(home.glob('*.log')))}.log", "w"))
            process = subprocess.Popen(command, env=env, cwd=home, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)

        start(
            BIN / "flower-superlink",
            "--insecure",
            "--disable-runtime-dependency-installation",
            *("--host", HOST, "--port", str(port)),
        )
        first = 0
        for (label, size), own_port in zip(SIZES.items(), others, strict=True):
            own, first = order[first : first + size], first + size
            np.savez(home / f"{label}.npz", X=X[own], y=y[own])
            config = {"agent": label, "rows": home / f"{label}.npz"}
            config |= {"journal": home / f"{label}.journal", "ledger": home / f"{label}.ledger"}
            start(
                BIN / "flower-supernode",
                "--insecure",
                *("--superlink", f"{HOST}:{port}", "--port", str(own_port)),
                *("--node-config", " ".join(f'{k}="{v}"' for k, v in config.items())),
            )
        while not listens(port):
            time.sleep(0.5)
        begun = time.perf_counter()
        result = home / "model.pkl"
        subprocess.run(
            [BIN / "flwr", "run", HERE, "here", "--run-config", f'result="{result}"'],
            env=env,
            check=True,
        )
        while not result.exists() and time.perf_counter() < begun + 1500:
            time.sleep(0.5)
        time.sleep(0.5)
        if not result.exists():
            for log in sorted(home.glob("*.log")):
                print(log, log.read_text()[-3000:])
        model = pickle.loads(result.read_bytes())
        print(f"{model.n_rounds_} rounds in {time.perf_counter() - begun:.0f} s")
        print(model.privacy_)
        for label in SIZES:
            command = [sys.executable, "-m", "skdpadmm.ledger", home / f"{label}.ledger"]
            print(subprocess.run(command, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
