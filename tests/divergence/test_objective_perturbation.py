"""Hidden noise: claims about solutions of perturbed problems, against exact densities."""

import numpy as np
import pytest

from skdpadmm import DPAdmmHuberRegressor, DPAdmmLinearSVC, DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms import ObjectivePerturbation
from tests.divergence.densities import divergence_of_hidden_term

LOSSES = {
    "squared": (DPAdmmRidge, {"alpha": 0.0}),
    "huber": (DPAdmmHuberRegressor, {"alpha": 0.0, "huber_threshold": 0.3}),
    "hinge": (DPAdmmLinearSVC, {"C": np.inf, "smoothing": 0.5}),
    "logistic": (DPAdmmLogisticRegression, {"C": np.inf}),
    "weighted": (DPAdmmLogisticRegression, {"C": np.inf, "class_weight": {-1: 0.5, 1: 6.0}}),
}


def model_of(loss, *, clip_norm=0.6, ridge=12.0, **params):
    estimator, own = LOSSES[loss]
    algorithm = ObjectivePerturbation(clip_norm=clip_norm, ridge=ridge)
    is_regression = loss in ("squared", "huber")
    schema = {"target_bounds": (-1, 1)} if is_regression else {"classes": [-1, 1]}
    shared = {"fit_intercept": False, "conditioning": None, "delta": 1e-4, **schema}
    return estimator(algorithm=algorithm, **{**own, **shared, **params})


def data_sets(neighboring):
    # A record of zeros has a loss that is constant: it is the zero function.
    other = (0.0, 1) if neighboring == "zero_out" else (1.0, -1)
    return [
        (np.array([[x], [0.6], [-0.3], [0.0]]), np.array([y, 1, 1, -1]))
        for x, y in ((1.0, 1), other)
    ]


@pytest.mark.parametrize("neighboring", ["zero_out", "replace_one"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_exact_divergence_of_a_solution_stays_below_the_claim(loss, neighboring):
    model = model_of(loss, neighboring=neighboring)
    exact, claimed = divergence_of_hidden_term(model, *data_sets(neighboring), 1.0, n_terms=101)
    # Interpolation of a density with kinks errs by 5e-3.
    assert exact <= claimed * 1.01


def test_a_clip_that_binds_stays_below_the_claim():
    model = model_of("squared", clip_norm=0.1, neighboring="replace_one")
    exact, claimed = divergence_of_hidden_term(model, *data_sets("replace_one"), 1.0)
    assert exact <= claimed * 1.01


def test_a_linear_loss_comes_close_to_the_whole_budget():
    model = model_of("hinge", ridge=1e4, smoothing=1e-3, neighboring="replace_one")
    exact, claimed = divergence_of_hidden_term(model, *data_sets("replace_one"), 1.0)
    assert 0.7 * claimed < exact <= claimed


@pytest.mark.parametrize("weight", [1.0, 6.0])
def test_a_curved_loss_needs_the_planned_ridge(weight):
    own = {"smoothing": 2.0, "class_weight": {1: weight}}
    model = model_of("hinge", clip_norm=50.0, ridge=50.0, neighboring="zero_out", **own)
    one, other = (np.array([[x], [0.0]]) for x in (1.0, 0.0))
    y = np.array([1, 1])
    exact, claimed = divergence_of_hidden_term(model, (one, y), (other, y), 1.0)
    assert exact <= claimed * 1.01
    with pytest.raises(ValueError, match=r"^Got ridge=0.5 at epsilon=1, expected a larger one"):
        model.set_params(algorithm__ridge=0.5).plan(2, 1)
