"""What the project is compared with: private learners written for speed, in plain numpy.

Rows are in public coordinates: features in [-1, 1] and a column of ones, so that no norm exceeds
``sqrt(d)`` with d columns. A cell is a budget: a Gaussian-DP parameter and the factor by which
`neighboring` multiplies the sensitivity of a sum of clipped contributions (1 zero-out, 2
replace-one). Every tuned setting of every cell is a column of one parameter matrix, so that one
product with the rows serves all of them.

Peers are given every benefit: settings are tuned for free, and no rounding is accounted for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from skdpadmm.privacy import gaussian_mu

Array = NDArray[Any]

# Curvature of the loss of one score, at most: a step is counted in its inverse.
CURVATURE = {"logistic": 0.25, "softmax": 0.25, "squared": 1.0}
# Rows are clipped to this share of sqrt(d) for the second moment.
SECOND_MOMENT_NORM = 0.4
# Elements of one block of scores: what stays in the cache of a core.
BLOCK = 2**18


@dataclass(frozen=True)
class Cell:
    """A budget under a neighbouring relation, and its Gaussian-DP parameter."""

    epsilon: float
    delta: float
    neighboring: str
    mu: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", gaussian_mu(self.epsilon, self.delta))

    @property
    def factor(self) -> float:
        """Sensitivity of a sum of vectors of norm at most 1."""
        return 2.0 if self.neighboring == "replace_one" else 1.0

    @property
    def matrix_factor(self) -> float:
        """Frobenius sensitivity of a sum of matrices ``a a'`` of rows of norm at most 1."""
        return math.sqrt(2.0) if self.neighboring == "replace_one" else 1.0


@dataclass(frozen=True)
class PlainSetting:
    """DP-GD with heavy-ball momentum; the clip is counted in sqrt(d)."""

    n_iter: int
    momentum: float
    step: float
    clip: float


@dataclass(frozen=True)
class ConditionedSetting:
    """DP-GD in private coordinates; the clip is counted in the root of the mean squared norm."""

    share: float
    floor: float
    step: float
    clip: float


def plain_settings(loss: str) -> list[PlainSetting]:
    """The 42 settings that plain DP-GD is tuned over: those that were best somewhere in 144."""
    if loss == "squared":
        grids = [
            (100, 0.9, (0.1, 0.3, 1, 3, 10), (0.03, 0.1, 0.3)),
            (100, 0.9, (1, 3, 10), (0.01,)),
            (100, 0, (0.3, 1, 3, 10), (0.03, 0.1, 0.3)),
            (100, 0, (3, 10), (0.01,)),
            (30, 0.9, (1, 3), (0.1, 0.3)),
            (30, 0, (0.3, 3, 10), (0.1, 0.3)),
        ]
    else:
        grids = [
            (100, 0.9, (1, 3, 10, 25), (0.03, 0.1, 0.3, 1)),
            (100, 0.9, (0.3,), (0.1, 0.3)),
            (100, 0, (3, 10, 30), (0.03, 0.1, 0.3)),
            (30, 0.9, (1, 3, 10), (0.1, 0.3, 1)),
            (30, 0, (0.3, 3, 10), (0.1, 0.3)),
        ]
    return [
        PlainSetting(n_iter, momentum, step, clip)
        for n_iter, momentum, steps, clips in grids
        for step, clip in itertools.product(steps, clips)
    ]


def conditioned_settings(loss: str) -> list[ConditionedSetting]:
    """The 108 settings that conditioned DP-GD is tuned over, found in the same way in 180."""
    if loss == "squared":
        clips = {0.03: (0.3,), 0.1: (0.1, 0.3), 0.3: (0.01, 0.03, 0.1, 0.3)}
        clips |= {1: (0.01, 0.03, 0.1), 2: (0.01, 0.3)}
    else:
        clips = {0.1: (0.3,), 0.3: (0.1, 0.3), 1: (0.01, 0.03, 0.1, 0.3)}
        clips |= {2: (0.01, 0.03, 0.1, 0.3), 4: (0.3,)}
    pairs = [(step, clip) for step, bounds in clips.items() for clip in bounds]
    return [
        ConditionedSetting(share, floor, step, clip)
        for share, floor in itertools.product((0.1, 0.25, 0.4), (0.15, 0.5, 1.5))
        for step, clip in pairs
    ]


# --------------------------------------------------------------------------------------------------
# Private gradient descent, many columns at once


def descend(
    rows: Array,
    target: Array,
    loss: str,
    n_outputs: int,
    *,
    bases: Array,
    clip: Array,
    step: Array,
    momentum: Array,
    noise_std: Array,
    n_iter: int,
    rng: np.random.Generator,
) -> Array:
    """Clipped, noisy, full-batch gradient descent; the mean of the last half of the path.

    Parameters
    ----------
    rows : ndarray of shape (n, d), float32
    target : ndarray of shape (n,)
    loss : {"logistic", "softmax", "squared"}
    n_outputs : int
    bases : ndarray of shape (B, d, d), float32
        Column s of basis b moves in the coordinates ``v`` with ``w = bases[b] @ v``.
    clip, step, momentum, noise_std : ndarray of shape (B, S), float32
        Clip bound of a record's gradient in these coordinates, and noise of their mean.
    n_iter : int
    rng : Generator
        Draws a (B, d, n_outputs, S) array of float32 in each iteration.

    Returns
    -------
    weights : ndarray of shape (d, n_outputs, B, S)
    """
    n, d = rows.shape
    n_bases, n_settings = clip.shape
    n_columns = n_bases * n_settings
    shape = (n_bases, d, n_outputs, n_settings)
    inverse_norms = np.stack([_inverse_norms(rows @ basis) for basis in bases], axis=1)
    block = max(32, BLOCK // (n_columns * n_outputs))
    position, velocity, tail = (np.zeros(shape, np.float32) for _ in range(3))
    gradient_of = RESIDUALS[loss]
    step, momentum, noise_std = (a[:, None, None, :] for a in (step, momentum, noise_std))
    for t in range(n_iter):
        weights = _in_user_coordinates(bases, position).reshape(d, -1)
        total = np.zeros((d, n_outputs * n_columns), np.float32)
        for start in range(0, n, block):
            part = rows[start : start + block]
            scores = (part @ weights).reshape(len(part), n_outputs, n_columns)
            gradient_of(scores, target[start : start + block])
            limits = inverse_norms[start : start + block, :, None] * clip
            _clip(scores, limits.reshape(len(part), n_columns))
            total += part.T @ scores.reshape(len(part), -1)
        mean = total.reshape(d, n_outputs, n_bases, n_settings).transpose(2, 0, 1, 3) / n
        gradient = np.matmul(bases.transpose(0, 2, 1), mean.reshape(n_bases, d, -1)).reshape(shape)
        gradient += noise_std * rng.standard_normal(shape, dtype=np.float32)
        velocity = momentum * velocity + gradient
        position = position - step * velocity
        if t >= n_iter // 2:
            tail += position
    return _in_user_coordinates(bases, tail / (n_iter - n_iter // 2))


def _in_user_coordinates(bases: Array, position: Array) -> Array:
    n_bases, d, n_outputs, n_settings = position.shape
    weights = np.matmul(bases, position.reshape(n_bases, d, -1))
    weights = weights.reshape(n_bases, d, n_outputs, n_settings).transpose(1, 2, 0, 3)
    return np.ascontiguousarray(weights)


def _inverse_norms(rows: Array) -> Array:
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return (1 / np.maximum(norms, 1e-12)).astype(np.float32)


def _logistic(scores: Array, target: Array) -> None:
    scores *= 0.5
    np.tanh(scores, out=scores)
    scores -= target[:, None, None]
    scores *= 0.5


def _squared(scores: Array, target: Array) -> None:
    scores -= target[:, None, None]


def _softmax(scores: Array, target: Array) -> None:
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    scores[np.arange(len(scores)), target.astype(int)] -= 1


RESIDUALS: dict[str, Callable[[Array, Array], None]] = {
    "logistic": _logistic,
    "softmax": _softmax,
    "squared": _squared,
}


def _clip(derivatives: Array, limits: Array) -> None:
    """Scale the derivatives of each record and column to a joint norm of at most its limit."""
    if derivatives.shape[1] == 1:
        flat = derivatives[:, 0]
        np.minimum(flat, limits, out=flat)
        np.maximum(flat, -limits, out=flat)
    else:
        norms = np.sqrt(np.einsum("ikc,ikc->ic", derivatives, derivatives))
        derivatives *= np.minimum(1, limits / np.maximum(norms, 1e-30))[:, None]


def plain_gradient_descent(
    rows: Array,
    target: Array,
    loss: str,
    n_outputs: int,
    cells: list[Cell],
    settings: list[PlainSetting],
    rng: np.random.Generator,
) -> Array:
    """DP-GD with momentum: weights of shape (d, n_outputs, n_cells, n_settings)."""
    n, d = rows.shape
    weights = np.empty((d, n_outputs, len(cells), len(settings)), np.float32)
    for n_iter in sorted({setting.n_iter for setting in settings}):
        chosen = [k for k, setting in enumerate(settings) if setting.n_iter == n_iter]
        columns = list(itertools.product(cells, (settings[k] for k in chosen)))
        clip = np.array([s.clip * math.sqrt(d) for _, s in columns], np.float32)
        multiplier = [c.factor * math.sqrt(n_iter) / (c.mu * n) for c, _ in columns]
        found = descend(
            rows,
            target,
            loss,
            n_outputs,
            bases=np.eye(d, dtype=np.float32)[None],
            clip=clip[None],
            step=np.array([[s.step / (CURVATURE[loss] * d) for _, s in columns]], np.float32),
            momentum=np.array([[s.momentum for _, s in columns]], np.float32),
            noise_std=(clip * multiplier).astype(np.float32)[None],
            n_iter=n_iter,
            rng=rng,
        )
        weights[..., chosen] = found.reshape(d, n_outputs, len(cells), len(chosen))
    return weights


def conditioned_gradient_descent(
    rows: Array,
    target: Array,
    loss: str,
    n_outputs: int,
    cells: list[Cell],
    settings: list[ConditionedSetting],
    rng: np.random.Generator,
    *,
    n_iter: int = 100,
) -> Array:
    """DP-GD in privately conditioned coordinates: weights (d, n_outputs, n_cells, n_settings)."""
    n, d = rows.shape
    weights = np.empty((d, n_outputs, len(cells), len(settings)), np.float32)
    moment = clipped_second_moment(rows)
    places: dict[tuple[float, float], list[int]] = {}
    for k, setting in enumerate(settings):
        places.setdefault((setting.share, setting.floor), []).append(k)
    # Cells go together as long as their scores fill no more than a block's width.
    together = max(1, 1000 // (len(settings) * n_outputs))
    for start in range(0, len(cells), together):
        chunk = cells[start : start + together]
        for share_floors in _equal_lengths(places):
            bases, clip, step, noise_std = [], [], [], []
            for cell, (share, floor) in itertools.product(chunk, share_floors):
                basis, mean_square = noisy_basis(moment, n, cell, share, floor, rng)
                here = [settings[k] for k in places[share, floor]]
                bases.append(basis)
                clip.append([s.clip * math.sqrt(mean_square) for s in here])
                step.append([s.step / CURVATURE[loss] for s in here])
                left = math.sqrt(1 - share) * cell.mu
                noise_std.append(np.array(clip[-1]) * cell.factor * math.sqrt(n_iter) / (left * n))
            found = descend(
                rows,
                target,
                loss,
                n_outputs,
                bases=np.array(bases, np.float32),
                clip=np.array(clip, np.float32),
                step=np.array(step, np.float32),
                momentum=np.zeros_like(step, np.float32),
                noise_std=np.array(noise_std, np.float32),
                n_iter=n_iter,
                rng=rng,
            )
            found = found.reshape(d, n_outputs, len(chunk), len(share_floors), -1)
            for j, key in enumerate(share_floors):
                weights[:, :, start : start + len(chunk), places[key]] = found[:, :, :, j]
    return weights


def _equal_lengths(places: dict[tuple[float, float], list[int]]) -> list[list[Any]]:
    """Bases with equally many settings: columns form a rectangle."""
    lengths = sorted({len(place) for place in places.values()})
    return [[key for key in places if len(places[key]) == length] for length in lengths]


def clipped_second_moment(rows: Array) -> Array:
    """Sum of ``b b'`` over rows clipped to norm ``SECOND_MOMENT_NORM * sqrt(d)``."""
    limit = SECOND_MOMENT_NORM * math.sqrt(rows.shape[1])
    clipped = rows * np.minimum(1, limit * _inverse_norms(rows))[:, None]
    return np.asarray((clipped.T @ clipped).astype(float))


def noisy_basis(
    moment: Array, n: int, cell: Cell, share: float, floor: float, rng: np.random.Generator
) -> tuple[Array, float]:
    """A basis in which a noisy second moment is the identity, and a row's mean square there.

    The matrix spends `share` of mu^2. The noise of its entries has equal size in all directions of
    the Frobenius metric, so that the edge of its spectrum is 2e. Eigenvalues beyond the edge are
    shrunk, the others are set to `floor * e`.
    """
    d = len(moment)
    bound = SECOND_MOMENT_NORM**2 * d
    std = cell.matrix_factor * bound / (math.sqrt(share) * cell.mu * n)
    normal = rng.standard_normal((d, d))
    noisy = moment / n + std * (normal + normal.T) / 2
    values, vectors = np.linalg.eigh(noisy)
    edge = std * math.sqrt(d / 2)
    detected = values > 2 * edge
    shrunk = (values + np.sqrt(np.maximum(values**2 - 4 * edge**2, 0))) / 2
    least = min(floor * edge, bound)
    kept = np.where(detected, np.maximum(shrunk, least), least)
    trace = float(np.clip(np.trace(noisy), bound / 4, bound))
    undetected = max(trace - float(shrunk[detected].sum()), 0)
    basis = (vectors / np.sqrt(kept)).astype(np.float32)
    return basis, float(detected.sum()) + undetected / least


# --------------------------------------------------------------------------------------------------
# Learners without settings


def objective_perturbation(
    rows: Array, target: Array, loss: str, cell: Cell, rng: np.random.Generator
) -> Array:
    """Minimise loss + strength/2 |w|^2 + b'w exactly: weights of shape (d, 1).

    Calibrated after Redberg, Koskela, Wang (2023), approximately, for comparison only:
    ``log(1 + curvature/strength)`` of epsilon pays for the Jacobian, and twice the divergence of
    the Gaussian release is at most delta. Squares are made Lipschitz: beyond a residual of 1, half
    the width of the target's bounds, the loss is linear; and as weights of norm 1 explain such a
    target, the strength is at least what the noise is worth against them. The two shares did best
    on five of the data sets.
    """
    d = rows.shape[1]
    jacobian = cell.epsilon * (0.1 if loss == "squared" else 0.25)
    std = cell.factor * math.sqrt(d) / gaussian_mu(cell.epsilon - jacobian, cell.delta / 2)
    strength = max(1.0, CURVATURE[loss] * d / math.expm1(jacobian))
    if loss == "squared":
        strength = max(strength, std * math.sqrt(d))
    tilt = std * rng.standard_normal((d,))
    w = np.zeros(d)
    value, gradient, hessian = _penalised(rows, target, loss, strength, tilt, w)
    for _ in range(50):
        direction = -np.linalg.solve(hessian, gradient)
        slope, length = float(gradient @ direction), 1.0
        while length > 1e-6:
            trial = _penalised(rows, target, loss, strength, tilt, w + length * direction)
            if trial[0] <= value + 0.1 * length * slope:
                break
            length /= 2
        w = w + length * direction
        value, gradient, hessian = trial
        if -slope < 1e-8 * (1 + abs(value)):
            break
    return w[:, None]


def _penalised(
    rows: Array, target: Array, loss: str, strength: float, tilt: Array, w: Array
) -> tuple[float, Array, Array]:
    """Value, gradient and Hessian of the perturbed objective."""
    scores = rows @ w
    if loss == "logistic":
        margin = target * scores
        values, slopes = np.logaddexp(0, -margin), -target * expit(-margin)
        curvatures = expit(margin) * expit(-margin)
    else:
        residual = scores - target
        slopes = np.clip(residual, -1, 1)
        values, curvatures = slopes * (residual - slopes / 2), (np.abs(residual) < 1).astype(float)
    value = values.sum() + strength / 2 * (w @ w) + tilt @ w
    gradient = rows.T @ slopes + strength * w + tilt
    hessian = (rows.T * curvatures) @ rows + strength * np.eye(len(w))
    return float(value), gradient, hessian


def adassp(rows: Array, target: Array, cell: Cell, rng: np.random.Generator) -> Array:
    """Adaptive sufficient statistics perturbation (Wang 2018, Algorithm 2): weights (d, 1).

    A third of mu^2 each for the smallest eigenvalue, the second moment, and the products with the
    target; the paper's classical Gaussian noise is replaced by exact noise.
    """
    d = rows.shape[1]
    mu = cell.mu / math.sqrt(3)
    moment = rows.T @ rows
    least = float(np.linalg.eigvalsh(moment)[0]) + d / mu * rng.standard_normal()
    # 1.64: the paper's log(6/delta), a bound of the noise that holds with probability 95 %.
    least = max(0.0, least - 1.64 * d / mu)
    std = cell.matrix_factor * d / mu
    normal = np.triu(rng.standard_normal((d, d)))
    noisy = moment + std * (normal + np.triu(normal, 1).T)
    product = rows.T @ target + cell.factor * math.sqrt(d) / mu * rng.standard_normal(d)
    ridge = max(0.0, std * math.sqrt(d * math.log(2 * d**2 / 0.05)) - least)
    return np.linalg.solve(noisy + ridge * np.eye(d), product)[:, None]


# --------------------------------------------------------------------------------------------------
# Scores of many models at once


def evaluate(rows: Array, target: Array, loss: str, weights: Array) -> tuple[Array, Array]:
    """Accuracy or R2, and log-loss (zero in regression); weights (d, n_outputs, ...)."""
    d, n_outputs = weights.shape[:2]
    metric, log_loss = [], []
    flat = weights.reshape(d, n_outputs, -1)
    for column in np.array_split(np.arange(flat.shape[2]), max(1, flat.shape[2] // 100)):
        part = rows @ flat[:, :, column].reshape(d, -1)
        scores = part.reshape(len(rows), n_outputs, len(column)).astype(float)
        if loss == "squared":
            error = ((scores[:, 0] - target[:, None]) ** 2).sum(axis=0)
            metric.append(1 - error / ((target - target.mean()) ** 2).sum())
            log_loss.append(np.zeros(len(column)))
        elif loss == "logistic":
            margin = scores[:, 0] * target[:, None]
            # As `predict` does: a score of 0 is the lower class.
            metric.append(((scores[:, 0] > 0) == (target[:, None] > 0)).mean(axis=0))
            log_loss.append(np.logaddexp(0, -margin).mean(axis=0))
        else:
            index = target.astype(int)
            metric.append((scores.argmax(axis=1) == index[:, None]).mean(axis=0))
            scores -= scores.max(axis=1, keepdims=True)
            chosen = scores[np.arange(len(rows)), index]
            log_loss.append((np.log(np.exp(scores).sum(axis=1)) - chosen).mean(axis=0))
    shape = weights.shape[2:]
    return np.concatenate(metric).reshape(shape), np.concatenate(log_loss).reshape(shape)


# --------------------------------------------------------------------------------------------------
# The many columns against one loop over records


def self_check() -> None:
    """Compare every column of a tiny problem with a loop over records; raise where they differ."""
    rng = np.random.default_rng(0)
    n, d, n_iter = 40, 4, 6
    rows = np.column_stack([rng.uniform(-1, 1, (n, d - 1)), np.ones(n)]).astype(np.float32)
    targets = {
        "logistic": (1, np.sign(rows[:, 0] + 0.1)),
        "softmax": (3, rng.integers(0, 3, n).astype(np.float32)),
        "squared": (1, rows[:, 1] * 0.5),
    }
    for loss, (n_outputs, target) in targets.items():
        bases = rng.standard_normal((2, d, d)).astype(np.float32)
        columns: dict[str, Any] = {
            "clip": rng.uniform(0.2, 1, (2, 3)),
            "step": rng.uniform(0.1, 1, (2, 3)),
            "momentum": rng.uniform(0, 0.9, (2, 3)),
            "noise_std": rng.uniform(0, 0.1, (2, 3)),
        }
        columns = {name: values.astype(np.float32) for name, values in columns.items()}
        shared: dict[str, Any] = {"bases": bases, "n_iter": n_iter}
        fast = descend(
            rows, target, loss, n_outputs, **shared, **columns, rng=np.random.default_rng(1)
        )
        noise = np.random.default_rng(1)
        draws = [
            noise.standard_normal((2, d, n_outputs, 3), dtype=np.float32) for _ in range(n_iter)
        ]
        for b, s in itertools.product(range(2), range(3)):
            one: dict[str, Any] = {name: float(values[b, s]) for name, values in columns.items()}
            seen = [draw[b, :, :, s] for draw in draws]
            slow = _one_column(rows, target, loss, n_outputs, bases[b], seen, **one)
            np.testing.assert_allclose(fast[:, :, b, s], slow, rtol=1e-4, atol=1e-4)
    _check_the_grids()


def _one_column(
    rows: Array,
    target: Array,
    loss: str,
    n_outputs: int,
    basis: Array,
    draws: list[Array],
    *,
    clip: float,
    step: float,
    momentum: float,
    noise_std: float,
) -> Array:
    """The iteration of `descend` as a book would write it, in float64."""
    position, velocity = np.zeros((2, rows.shape[1], n_outputs))
    path = []
    for draw in draws:
        total = np.zeros_like(position)
        for a, y in zip(rows.astype(float) @ basis.astype(float), target, strict=True):
            scores = a @ position
            if loss == "logistic":
                derivative = -y * expit(-y * scores)
            elif loss == "squared":
                derivative = scores - y
            else:
                derivative = np.exp(scores) / np.exp(scores).sum() - np.eye(n_outputs)[int(y)]
            gradient = np.outer(a, derivative)
            total += gradient * min(1.0, clip / np.linalg.norm(gradient))
        velocity = momentum * velocity + total / len(rows) + noise_std * draw
        position = position - step * velocity
        path.append(position)
    return np.asarray(basis @ np.mean(path[len(path) // 2 :], axis=0))


def _check_the_grids() -> None:
    """At a huge budget the best of each grid is as good as least squares, in every cell."""
    rng = np.random.default_rng(2)
    rows = np.column_stack([rng.uniform(-1, 1, (4000, 3)), np.ones(4000)]).astype(np.float32)
    target = (rows @ [0.3, -0.2, 0.1, 0.2]).astype(np.float32)
    cells = [Cell(100.0, 1e-5, name) for name in ("zero_out", "replace_one")]
    arguments = (rows, target, "squared", 1, cells)
    found = [
        plain_gradient_descent(*arguments, plain_settings("squared"), rng),
        conditioned_gradient_descent(*arguments, conditioned_settings("squared"), rng),
        np.stack([adassp(rows, target, cell, rng) for cell in cells], axis=2),
        np.stack(
            [objective_perturbation(rows, target, "squared", cell, rng) for cell in cells], axis=2
        ),
    ]
    for weights in found:
        r2 = evaluate(rows, target, "squared", weights)[0].reshape(len(cells), -1)
        if r2.max(axis=1).min() < 0.98:
            raise AssertionError(f"Got R2={r2.max(axis=1)} at epsilon=100, expected above 0.98.")
