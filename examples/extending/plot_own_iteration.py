"""
Your own iteration
==================

Four methods of a few lines each. The budget is spent on the gradients, whatever a method makes of
them: no step has to be short, and no map has to be a contraction.
"""

from __future__ import annotations

import numpy as np

from skdpadmm.algorithms import FixedPointIteration

STEP, MOMENTUM, RELAXATION = 0.3, 0.7, 0.4
TWO = np.zeros((2, 1, 1))  # A state of two models, whatever their shape.


def gradient_descent(w, gradient, k, prox):
    return prox(w - STEP * gradient, STEP)


def heavy_ball(state, gradient, k, prox):
    w, before = state
    return np.stack([prox(w + MOMENTUM * (w - before) - STEP * gradient, STEP), w])


def latest(state, prox):
    return state[0]


def extrapolated(state, prox):
    w, before = state
    return w + MOMENTUM * (w - before)


def nesterov(state, gradient, k, prox):
    return np.stack([prox(extrapolated(state, prox) - STEP * gradient, STEP), state[0]])


def consensus(u, prox):
    return prox(u, STEP)


def linearized_admm(u, gradient, k, prox):
    """Of the mean of all records' states, each of which is linearised at the consensus z."""
    return u + 2 * RELAXATION * (prox(u, STEP) - u - STEP * gradient)


METHODS = {
    "gradient descent": FixedPointIteration(update=gradient_descent),
    "heavy ball": FixedPointIteration(update=heavy_ball, at=latest, state=TWO),
    "Nesterov": FixedPointIteration(update=nesterov, at=extrapolated, state=TWO),
    "linearised ADMM": FixedPointIteration(update=linearized_admm, at=consensus),
}


if __name__ == "__main__":
    import matplotlib.pyplot as plt
    from sklearn.datasets import load_diabetes

    from skdpadmm import DPAdmmElasticNet

    X, y = load_diabetes(return_X_y=True)
    model = DPAdmmElasticNet(
        alpha=0.01,
        epsilon=4.0,
        feature_bounds=(-0.2, 0.2),
        target_bounds=(0, 350),
        max_iter=40,
        random_state=0,
    )

    # All steps count as released, so a trace spends nothing. The picture itself is not private: it
    # scores the models on the private rows.
    fig, ax = plt.subplots()
    for name, algorithm in METHODS.items():
        model.set_params(algorithm=algorithm.set_params(trace=True)).fit(X, y)
        predicted = X @ model.coef_path_.T + model.intercept_path_
        error = np.square(predicted - y[:, None]).mean(axis=0)
        ax.plot(1 - error / y.var(), label=name)
    ax.set(xlabel="step", ylabel="R2 on the training rows", ylim=(0.1, 0.5))
    ax.set_title("Four methods, each at epsilon 4 in all")
    ax.legend()
    plt.show()

    # What the last of them releases, and that its maps must not know the rows.
    print(model.privacy_)
