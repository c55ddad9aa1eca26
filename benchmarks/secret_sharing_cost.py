"""Running time of rounds with and without secret sharing.

    python benchmarks/secret_sharing_cost.py            10 to 1,000 agents, some minutes
    python benchmarks/secret_sharing_cost.py --quick    10 and 50, for a look: no verdict

100,000 rows of 100 features are at 10 to 1,000 agents. A round of plain noisy gradient descent
(`DecentralizedGradientDescent`, over a ring) is a gradient of every agent, noise on it, and an
average of neighbours. With secret sharing (`SecretSharingGradientDescent`) messages are rounded to
the grid of the noise, split among curators, added up by each of them and reconstructed. Every agent
is a curator, or three of them are, with additive shares; or five are, of whom any three reconstruct
Shamir's shares. Random numbers come from the operating system's generator, for each agent one less
than there are curators, or than reconstruct.

Its time is the difference of a long and a short fit over the difference of their rounds, so that
nothing counts that happens once, with one BLAS thread. Each is divided by the round of plain
gradient descent that was measured beside it; figures are medians. "of it shares" is the protocol
alone (`share_and_sum`, messages of the same shape). It passes where 100 agents of 1,000 rows, all
of them curators, take at most 20 times as long. Nothing printed here depends on the values in the
data.
"""

from __future__ import annotations

import argparse
import os
import statistics
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import threadpoolctl
from federated_scaling import Array, make_data, seconds
from matplotlib import pyplot as plt

from skdpadmm import DPDecentralizedRegressor
from skdpadmm.algorithms import DecentralizedGradientDescent, SecretSharingGradientDescent
from skdpadmm.secret_sharing import PRIME, share_and_sum, uniform_residues

OUTPUT = Path(__file__).parent / "output" / "secret_sharing_cost.png"
BAR = 20.0
# The size that the bar is for.
BAR_AGENTS = 100
SHORT = 2
# Shares of the long fit's rounds, and its rounds, at most.
SHARES, LONG = 5e8, 40
# Curators, and how many of them reconstruct a sum; 0: everyone, and all of them.
KINDS = {"everyone": (0, 0), "3 curators": (3, 0), "3 of 5": (5, 3)}


@dataclass(frozen=True)
class Cost:
    """What a round with secret sharing costs."""

    kind: str
    n_agents: int
    times: tuple[float, ...]
    plain: tuple[float, ...]
    shares: float

    @property
    def seconds(self) -> float:
        return statistics.median(self.times)

    @property
    def ratio(self) -> float:
        return statistics.median(a / b for a, b in zip(self.times, self.plain, strict=True))


def estimator(n_agents: int, algorithm: Any, n_rounds: int) -> Any:
    return DPDecentralizedRegressor(
        n_agents=n_agents,
        topology="ring",
        algorithm=algorithm,
        max_iter=n_rounds,
        conditioning=None,
        feature_bounds=(0, 1),
        target_bounds=(-1, 1),
        delta=1e-8,
    )


def round_of(n_agents: int, algorithm: Any, long: int, X: Array, y: Array) -> float:
    """Seconds of a round."""
    few, many = (
        seconds(lambda n=n: estimator(n_agents, algorithm, n).fit(X, y)) for n in (SHORT, long)
    )
    return (many - few) / (long - SHORT)


def measure(kind: str, n_agents: int, X: Array, y: Array, repeats: int) -> Cost:
    n_curators, threshold = KINDS[kind]
    n_curators, modulus = n_curators or n_agents, PRIME if threshold else 2**64
    sharing = SecretSharingGradientDescent(n_curators=n_curators, threshold=threshold or None)
    shape = (n_agents, X.shape[1] + 1, 1)
    long = SHORT + int(min(LONG, max(3, SHARES // (np.prod(shape) * n_curators))))
    times, plain, alone = [], [], []
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        for _ in range(repeats):
            plain.append(round_of(n_agents, DecentralizedGradientDescent(), SHORT + LONG, X, y))
            times.append(round_of(n_agents, sharing, long, X, y))
            secrets = uniform_residues(shape, modulus)
            alone.append(
                seconds(lambda s=secrets: share_and_sum(s, n_curators, modulus, threshold))
            )
    return Cost(kind, n_agents, tuple(times), tuple(plain), statistics.median(alone))


def show(title: str, sizes: list[int], data: tuple[Array, Array], **size: Any) -> list[Cost]:
    has_bars, repeats = size["has_bars"], size["repeats"]
    print(f"\n{title}")
    print(
        f"{'curators':11} {'agents':>6} {'ms a round':>11} {'of it shares':>13} {'ms plain':>9}"
        f" {'times plain':>12}  range"
    )
    found = []
    for kind in KINDS:
        for n_agents in sizes:
            one = measure(kind, n_agents, *data, repeats)
            counts = has_bars and kind == "everyone" and n_agents == BAR_AGENTS
            verdict = ("  pass" if one.ratio <= BAR else "  MISS") * counts
            each = [a / b for a, b in zip(one.times, one.plain, strict=True)]
            print(
                f"{kind:11} {n_agents:6,} {1e3 * one.seconds:11.2f} {1e3 * one.shares:13.2f}"
                f" {1e3 * statistics.median(one.plain):9.2f} {one.ratio:12.2f}"
                f"  {min(each):.2f} to {max(each):.2f}{verdict}",
                flush=True,
            )
            found.append(one)
    return found


def show_growth(found: list[Cost]) -> None:
    print("\nFrom the fewest agents to the most")
    for kind in KINDS:
        chosen = [one for one in found if one.kind == kind]
        first, last = chosen[0], chosen[-1]
        factor = last.n_agents / first.n_agents
        power = np.log(last.shares / first.shares) / np.log(factor)
        print(
            f"{kind:11} {factor:g} times the agents, {last.seconds / first.seconds:.1f} times the"
            f" round; shares alone grow with power {power:.2f}"
        )


def draw(found: list[Cost], title: str) -> None:
    fig, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for k, kind in enumerate(KINDS):
        chosen = [one for one in found if one.kind == kind]
        sizes = [one.n_agents for one in chosen]
        style: dict[str, Any] = {"color": f"C{k}", "marker": "o"}
        axes[0].plot(sizes, [1e3 * one.seconds for one in chosen], label=f"{kind}", **style)
        shares = [1e3 * one.shares for one in chosen]
        axes[0].plot(sizes, shares, linestyle="--", label=f"{kind}, shares alone", **style)
        axes[1].plot(sizes, [one.ratio for one in chosen], label=kind, **style)
    chosen = [one for one in found if one.kind == "everyone"]
    plain = [1e3 * statistics.median(one.plain) for one in chosen]
    axes[0].plot([one.n_agents for one in chosen], plain, "C7.-", label="plain")
    axes[0].set_ylabel("milliseconds of a round")
    axes[1].axhline(BAR, color="black", linewidth=1, label=f"bar, for {BAR_AGENTS} agents")
    axes[1].set_ylabel("a round, over one without sharing")
    for axis in axes:
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("agents")
        axis.legend(frameon=False, fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    fig.suptitle(title, fontsize=10)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(OUTPUT, dpi=120)
    print(f"\nWrote {OUTPUT}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small data, no verdict")
    parser.add_argument("--repeats", type=int, default=3, help="differences behind each median")
    options = parser.parse_args()
    mpl.use("Agg")
    # Many rounds at a small epsilon: noise is large here, and of no importance.
    warnings.simplefilter("ignore", UserWarning)
    quick = options.quick
    n, p = (5_000, 20) if quick else (100_000, 100)
    sizes = [10, 50] if quick else [10, 30, 100, 300, 1_000]
    load = os.getloadavg()[0]
    title = f"{n:,} x {p}, float64, {os.cpu_count()} cores, load {load:.1f} before the start"
    print(title)
    X, targets = make_data(n, p)
    data = X, targets["ridge"]
    estimator(10, "secret-sharing-gradient-descent", 2).fit(*data)  # warms up
    size: dict[str, Any] = {"repeats": 1 if quick else options.repeats, "has_bars": not quick}
    found = show("One round, shared out among everyone, three or five", sizes, data, **size)
    show_growth(found)
    draw(found, title)


if __name__ == "__main__":
    main()
