"""Gradient ADMM on random problems: divergences do not exceed the claim.

With quadratic losses and penalties the state after some steps is Gaussian, its covariance does not
depend on data, and the divergence of two neighbours is known to rounding. Problems come in batches
of one shape, so that thousands of them are quick.
"""

import numpy as np
import pytest

from skdpadmm.privacy import AmplifiedIteration, amplification_constant, contribution_mu

SHAPES = [(1, 1, 1), (2, 1, 1), (2, 2, 2), (3, 2, 1), (3, 3, 2), (4, 2, 3)]  # of x, lambda, y
N_STEPS = [1, 2, 3, 5, 8, 13]
BATCH = 120
ROUNDING = 1e-7  # of the linear algebra, relative


def transposed(a):
    return np.swapaxes(a, -1, -2)


def times(a, x):
    return (a @ x[..., None])[..., 0]


def random_matrices(rng, batch, rows, columns):
    """Full rank, with singular values over two decades."""
    u, _, v = np.linalg.svd(rng.standard_normal((batch, rows, columns)), full_matrices=False)
    s = np.exp(rng.uniform(np.log(0.1), np.log(10), (batch, 1, min(rows, columns))))
    return (u * s) @ v


def random_curvatures(rng, batch, size, low, high):
    """Symmetric, with eigenvalues in [low, high]; a third of them at an end."""
    q = np.linalg.qr(rng.standard_normal((batch, size, size)))[0]
    share = np.clip(rng.uniform(-0.25, 1.25, (batch, 1, size)), 0, 1)
    return (q * (low[:, None, None] + share * (high - low)[:, None, None])) @ transposed(q)


class Problems:
    """A batch of problems of one shape."""

    def __init__(self, rng, shape, batch=BATCH):
        n, m, k = shape
        self.rng, self.shape, self.batch = rng, shape, batch
        self.A = random_matrices(rng, batch, m, n)
        self.B = random_matrices(rng, batch, m, k)
        self.smoothness = np.exp(rng.uniform(-2, 2, batch))
        self.beta = np.exp(rng.uniform(-3, 3, batch))
        singular = np.linalg.svd(self.A, compute_uv=False)
        self.s_min = singular[:, -1]
        self.eta = 2 / self.smoothness * rng.choice([1e-3, 0.5, 0.9, 1.0], batch)
        self.kappa = self.eta * self.beta * self.s_min**2
        self.inverse = np.linalg.inv(
            np.eye(n) + (self.eta * self.beta)[:, None, None] * transposed(self.A) @ self.A
        )

    def quadratic_steps(self, n_steps):
        """Matrices (n_steps, batch, n + m, n + m) of the steps on (x, lambda)."""
        n, m, k = self.shape
        eta, beta = self.eta[:, None, None], self.beta[:, None, None]
        high = self.rng.choice([0.0, 1.0, 100.0], self.batch)
        G = random_curvatures(self.rng, self.batch, k, np.zeros(self.batch), high)
        # y solves (G + beta B'B) y = B' w for w = lambda - beta A x; By is unique.
        from_w = self.B @ np.linalg.pinv(G + beta * transposed(self.B) @ self.B, rcond=1e-13)
        from_w = beta * from_w @ transposed(self.B)
        w = np.concatenate([-beta * self.A, np.broadcast_to(np.eye(m), (self.batch, m, m))], axis=2)
        multipliers = (np.eye(m) - from_w) @ w
        pull = transposed(self.A) @ (from_w @ w - multipliers)
        steps = []
        for _ in range(n_steps):
            H = random_curvatures(self.rng, self.batch, n, np.zeros(self.batch), self.smoothness)
            x = -eta * pull
            x[:, :, :n] += np.eye(n) - eta * H
            steps.append(np.concatenate([self.inverse @ x, multipliers], axis=1))
        return np.array(steps).reshape(n_steps, self.batch, n + m, n + m)

    def worst_mu(self, steps, contributes, radii):
        """Exact mu of the last state, for the worst differences found.

        ``contributes`` is a list of (step, whether it enters through the gradient), each a free
        difference of norm ``radii`` (in units of the noise): before the noise of that step.
        """
        n, m, _ = self.shape
        direct = np.broadcast_to(np.eye(n + m)[:, :n], (self.batch, n + m, n))
        root = direct
        moved = []
        for t in range(len(steps)):
            if t:
                root = next_root(steps[t], root, n)
                moved = [steps[t] @ effect for effect in moved]
            for (when, by_gradient), radius in zip(contributes, radii, strict=True):
                if when == t:
                    gradient = direct @ self.inverse if by_gradient else direct
                    moved.append(radius[:, None, None] * gradient)
        return largest_mu(np.stack(moved, axis=1), root)


def next_root(step, root, n):
    """A root of the covariance of the state after a step, given one before it."""
    fresh = np.broadcast_to(np.eye(step.shape[-1])[:, :n], (len(step), step.shape[-1], n))
    both = np.concatenate([step @ root, fresh], axis=2)
    return transposed(np.linalg.qr(transposed(both), mode="r"))


def largest_mu(effects, root):
    """Mahalanobis norm of the sum of ``effects[:, e] @ u_e``, ``|u_e| <= 1``, by ascent.

    The covariance is ``root @ root'``: squaring it first would lose half of the digits. Infinite
    where a difference leaves its range.
    """
    batch, n_effects, size, n = effects.shape
    flat = np.moveaxis(effects, 1, 2).reshape(batch, size, n_effects * n)
    vectors, values, _ = np.linalg.svd(root, full_matrices=True)
    values = np.pad(values, ((0, 0), (0, size - values.shape[1])))
    kept = values > 1e-12 * values[:, :1]
    along = transposed(vectors) @ flat
    whitened = np.where(kept, 1 / np.where(kept, values, 1), 0)[:, :, None] * along
    outside = np.where(kept[:, :, None], 0, along)
    Q = transposed(whitened) @ whitened
    u = np.linalg.eigh(Q)[1][:, :, -1]
    for _ in range(1 if n_effects == 1 else 40):
        blocks = u.reshape(batch, n_effects, n)
        blocks = blocks / np.maximum(np.linalg.norm(blocks, axis=2, keepdims=True), 1e-300)
        u = blocks.reshape(batch, -1)
        mu = np.sqrt(np.einsum("bi,bij,bj->b", u, Q, u))
        lost = np.linalg.norm(times(outside, u), axis=1)
        u = times(Q, u)
    scale = np.linalg.norm(flat, axis=(1, 2))
    return np.where(lost > 1e-6 * scale, np.inf, mu)


def test_the_exact_divergence_of_one_contribution_is_below_every_bound():
    rng = np.random.default_rng(0)
    nearest = 0.0
    for shape in SHAPES:
        for n_steps in N_STEPS:
            problems = Problems(rng, shape)
            steps = problems.quadratic_steps(n_steps)
            ratio = np.exp(rng.uniform(-3, 1, problems.batch))
            exact = problems.worst_mu(steps, [(0, True)], [ratio])
            for i in range(problems.batch):
                constant = amplification_constant(problems.kappa[i])
                bound = AmplifiedIteration(ratio[i], constant).first(n_steps).mu
                assert exact[i] <= bound * (1 + ROUNDING)
                if shape[0] == shape[1]:
                    alone = contribution_mu(
                        1.0, ratio[i], 1.0, kappa=problems.kappa[i], square=True
                    )
                    bound = AmplifiedIteration(alone, constant).first(n_steps).mu
                    assert exact[i] <= bound * (1 + ROUNDING)
                nearest = max(nearest, exact[i] / bound) if n_steps > 3 else nearest
    assert nearest > 0.3  # the bounds are of the right size


def test_the_exact_divergence_of_several_contributions_is_below_the_bound_of_their_slot():
    rng = np.random.default_rng(1)
    for shape in SHAPES:
        for n_steps in (3, 6, 11):
            for _ in range(3):
                problems = Problems(rng, shape, batch=60)
                steps = problems.quadratic_steps(n_steps)
                sequence = rng.integers(-1, 2, n_steps)
                sequence[rng.integers(n_steps)] = 0
                own = [(int(t), True) for t in np.flatnonzero(sequence == 0)]
                ratio = np.exp(rng.uniform(-3, 1, problems.batch))
                exact = problems.worst_mu(steps, own, [ratio] * len(own))
                for i in range(problems.batch):
                    made = AmplifiedIteration(ratio[i], amplification_constant(problems.kappa[i]))
                    assert exact[i] <= made.slots(sequence, 2)[0] * (1 + ROUNDING)
                    assert exact[i] <= np.sqrt(len(own)) * made.local().mu * (1 + ROUNDING)


@pytest.mark.parametrize("contributions", [(0,), (0, 3)])
def test_differences_that_rounding_makes_in_every_step_are_below_the_bound(contributions):
    rng = np.random.default_rng(3)
    n_amplified = 0
    for shape in SHAPES:
        for n_steps in (1, 2, 4, 7, 12):
            problems = Problems(rng, shape, batch=30)
            steps = problems.quadratic_steps(n_steps)
            ratio = np.exp(rng.uniform(-2, 1, problems.batch))
            shift = ratio * np.exp(rng.uniform(-6, 0, problems.batch))
            own = [t for t in contributions if t < n_steps]
            contributes = [(t, True) for t in own] + [(t, False) for t in range(n_steps)]
            radii = [ratio] * len(own) + [shift] * n_steps
            exact = problems.worst_mu(steps, contributes, radii)
            at_once = problems.worst_mu(steps, [(0, True), (0, False)], [ratio, shift])
            sequence = np.ones(n_steps, dtype=int)
            sequence[own] = 0
            for i in range(problems.batch):
                constant = amplification_constant(problems.kappa[i])
                made = AmplifiedIteration(ratio[i], constant, shift[i])
                # Here rounding goes on in every step, where that of equal states would be equal:
                # the sum over all steps, without the gain of having stopped earlier.
                base = AmplifiedIteration(ratio[i], constant).slots(sequence, 2)[0]
                bound = base + np.sqrt(n_steps) * shift[i]
                assert exact[i] <= bound * (1 + ROUNDING)
                assert at_once[i] <= made.local().mu * (1 + ROUNDING)
                stops = ratio[i] * np.sqrt(constant) < shift[i] * n_steps / np.sqrt(2)
                amplified = made.first(n_steps).mu < made.local().mu
                if len(own) == 1 and n_steps % 2 == 0 and amplified and not stops:
                    assert exact[i] <= made.first(n_steps).mu * (1 + ROUNDING)
                    n_amplified += 1
    assert n_amplified > 20 or len(contributions) > 1


@pytest.mark.parametrize(("shape", "square"), [((2, 1, 1), False), ((1, 1, 1), True)])
def test_what_a_contribution_costs_alone_is_attained(shape, square):
    problems = Problems(np.random.default_rng(5), shape)
    exact = problems.worst_mu(
        problems.quadratic_steps(1), [(0, True)], [np.full(problems.batch, 0.7)]
    )
    claimed = [contribution_mu(1.0, 0.7, 1.0, kappa=k, square=square) for k in problems.kappa]
    np.testing.assert_allclose(exact, claimed, rtol=1e-9)
