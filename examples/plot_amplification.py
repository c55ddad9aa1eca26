"""Privacy amplification by iteration: later steps hide the contribution of a record.

python examples/plot_amplification.py        writes examples/output/amplification.png

All figures but those of the last part come from a plan, before any data. It takes twenty seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from plot_federated import first_lines, title

from skdpadmm import DPAdmmLasso
from skdpadmm.algorithms import GradientADMM
from skdpadmm.privacy import (
    AmplifiedIteration,
    GaussianDP,
    amplification_constant,
    mixture_of_slots,
    single_use_mu,
)

OUTPUT = Path(__file__).parent / "output" / "amplification.png"
DELTA, N_RECORDS = 1e-6, 1000
# Sensitivity of a step over its noise.
RATIO = 1.0
KAPPAS = {0.3: "C1", 1.0: "C0", 10.0: "C2"}
LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Lengths:
    """Epsilon against the length of a run in which each record is used once."""

    first: Array
    anywhere: Array


def admm(kappa: float) -> AmplifiedIteration:
    """Gradient ADMM with the noise of all figures here."""
    return AmplifiedIteration(RATIO, amplification_constant(kappa))


def epsilon_of(mu: Array) -> Array:
    return np.array([GaussianDP(float(value)).epsilon(DELTA) for value in mu])


def by_position(n_records: int) -> dict[str, Array]:
    """mu of the record at each position of one pass."""
    found = {
        f"gradient ADMM, kappa {kappa:g}": admm(kappa).slots(np.arange(n_records), n_records)
        for kappa in KAPPAS
    }
    return found | {"gradient descent": single_use_mu(RATIO, n_records)}


def by_length() -> dict[str, Lengths]:
    """Of the record at the best position, and of one at a random position that is secret."""
    runs = [by_position(length) for length in LENGTHS]
    return {
        name: Lengths(
            first=epsilon_of(np.array([run[name][0] for run in runs])),
            anywhere=np.array([mixture_of_slots(run[name]).epsilon(DELTA) for run in runs]),
        )
        for name in runs[0]
    }


def show_positions(mu: dict[str, Array], local: float) -> None:
    title("1. Positions in one pass")
    shown = (1, 500, 900, 990, 998, 999, 1000)
    print(f"epsilon at delta {DELTA:g}, by the position of a record among {N_RECORDS}\n")
    print(f"{'':28}" + "".join(f"{place:>8}" for place in shown))
    for name, values in mu.items():
        epsilons = epsilon_of(values[[place - 1 for place in shown]])
        print(f"{name:28}" + "".join(f"{epsilon:8.3f}" for epsilon in epsilons))
    print(
        f"""
Every step adds noise, and no step after a record's own increases the distance between two
iterates. So the noise of all of them hides the contribution, if only the last iterate is released.
The last records have few steps after them: theirs is {local:.3f}, that of a single step, which
also holds for every record if the path is released.

Gradient ADMM hides with pairs of steps, because its multipliers take no noise; gradient descent
with single ones. A large kappa, which is step size times penalty weight, hides more; it also
shortens the steps: by one plus kappa, where x = y is the constraint."""
    )


def show_lengths(found: dict[str, Lengths]) -> None:
    title("2. Longer runs, and an order that is secret")
    shown = [LENGTHS.index(length) for length in (1, 10, 100, 1000, 10_000)]
    print(f"{'records, each used once':40}" + "".join(f"{LENGTHS[k]:>9,}" for k in shown))
    for name, lengths in found.items():
        for label, values in (
            ("first", lengths.first),
            ("random position", lengths.anywhere),
        ):
            cells = "".join(f"{values[k]:9.3f}" for k in shown)
            print(f"{name + ', ' + label:40}{cells}")
    print(
        """
Of the first record epsilon falls like one over the root of the length. Of a record at a random
position it falls slowly: delta is then the mean over positions, and the last few have nearly all of
it. Where the order is known, the figure that holds for everyone is that of the last position."""
    )


def show_plans() -> None:
    title("3. Plans of an estimator")
    print(
        f"{'passes':>8}{'epsilon, random position':>26}{'at the worst':>14}{'noise over step':>17}"
    )
    for passes in (1, 3, 10):
        model = DPAdmmLasso(algorithm=GradientADMM(passes=passes), epsilon=1.0, delta=DELTA)
        path = model.plan(n_samples=N_RECORDS, n_features=5).releases[-1]
        worst = path.view().worst_cases[0].epsilon(DELTA)
        share = path.noise_std / path.sensitivities[0]
        print(f"{passes:>8}{path.guarantee.epsilon(DELTA):>26.3f}{worst:>14.3f}{share:>17.2f}")
    print(
        """
The budget is spent on the random position, and the worst stands beside it. More passes cost little,
because a pass hides what was done in the one before."""
    )


def show_stream() -> None:
    title("4. A stream, and what is known once it has ended")
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N_RECORDS, 5))
    y = np.clip(X @ [0.5, -0.3, 0.0, 0.0, 0.2] + 0.1 * rng.standard_normal(N_RECORDS), -1, 1)
    model = DPAdmmLasso(
        alpha=1e-3,
        epsilon=1.0,
        delta=DELTA,
        feature_bounds=(-1, 1),
        target_bounds=(-1, 1),
        algorithm=GradientADMM(schedule="stream"),
    )
    for first in range(0, N_RECORDS, 100):
        model.partial_fit(X[first : first + 100], y[first : first + 100])
    print(first_lines(model.finalize().privacy_, 12))
    print(
        """
Each record has its own budget, against an observer of the whole path. Only the user knows whether
nobody saw it, so the figures for that case are separate. They are computed when the stream ends;
the noise does not depend on its length."""
    )


def draw(mu: dict[str, Array], lengths: dict[str, Lengths], local: float) -> None:
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    colors = dict(zip(mu, (*KAPPAS.values(), "C3"), strict=True))
    # The end is where the figures change: count positions from there.
    steps_left = np.arange(N_RECORDS, 0, -1)
    for name, values in mu.items():
        left.plot(steps_left, epsilon_of(values), color=colors[name], label=name)
        right.plot(LENGTHS, lengths[name].first, "-", color=colors[name])
        right.plot(LENGTHS, lengths[name].anywhere, "--", color=colors[name])
    for axis in (left, right):
        axis.axhline(local, color="0.5", linestyle="-.", linewidth=1)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_ylabel(f"epsilon at delta {DELTA:g}")
    left.plot([], [], color="0.5", linestyle="-.", linewidth=1, label="a step alone, or the path")
    left.invert_xaxis()
    left.set_xlabel("steps from a record's own to the end")
    left.set_title(f"Positions in one pass of {N_RECORDS}", loc="left", fontsize=10)
    left.legend(frameon=False, fontsize=8)
    right.plot([], [], "-", color="0.3", label="first record")
    right.plot([], [], "--", color="0.3", label="random position, secret")
    right.set_xlabel("records in the run, each used once")
    right.set_title("Length of the run", loc="left", fontsize=10)
    right.legend(frameon=False, fontsize=8)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(OUTPUT, dpi=110)
    print(f"\nWrote {OUTPUT}")


def main() -> None:
    mpl.use("Agg")
    local = admm(1.0).local().epsilon(DELTA)
    mu, lengths = by_position(N_RECORDS), by_length()
    show_positions(mu, local)
    show_lengths(lengths)
    show_plans()
    show_stream()
    draw(mu, lengths, local)


if __name__ == "__main__":
    main()
