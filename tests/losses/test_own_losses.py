"""Losses of a user's own: which target they receive, and which theorems hold for them."""

import numpy as np
import pytest

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.algorithms._objective_perturbation import derivative_kind
from skdpadmm.losses import HuberLoss, LogisticLoss, SquaredLoss, WeightedLoss
from skdpadmm.privacy import LossDerivative


def test_only_losses_of_a_residual_get_a_scaled_target():
    seen = {}

    class Recorded(HuberLoss):
        smoothness = lipschitz = 1.0

        def derivative(self, scores, target):
            seen[self.is_of_residual] = (target.min(), target.max())
            return super().derivative(scores, target)

    class Plain(Recorded):
        is_of_residual = False

    for loss in (Recorded(1.0), Plain(1.0)):
        model = type("Own", (DPAdmmRidge,), {"_loss": lambda self, n_classes, loss=loss: loss})
        known = {"feature_bounds": (-1, 1), "target_bounds": (0, 8), "random_state": 0}
        model(**known).fit(np.linspace(-1, 1, 40)[:, None], np.linspace(-1, 9, 40))
    # Both are clipped to their bounds.
    assert seen == {True: (-1.0, 1.0), False: (0.0, 8.0)}


def test_a_loss_derived_from_a_logistic_one_has_no_theorem_of_it():
    class Steep(LogisticLoss):
        smoothness, lipschitz = 25.0, 10.0

        def derivative(self, scores, target):
            return 10 * super().derivative(10 * scores, target)

    class Own(DPAdmmLogisticRegression):
        def _loss(self, n_classes):
            return Steep()

    known = {"classes": [0, 1], "feature_bounds": (-1, 1), "algorithm": "objective-perturbation"}
    kinds = [
        cls(**known).plan(1_000, 3).guarantee().derivative
        for cls in (DPAdmmLogisticRegression, Own)
    ]
    assert kinds == [LossDerivative.LOGISTIC, LossDerivative.ANY]


def test_a_weighted_loss_with_a_derivative_of_its_own_has_no_theorem_of_the_weighted_one():
    class Tilted(WeightedLoss):
        smoothness, lipschitz = 2.0, 3.0

        def derivative(self, scores, target):
            return super().derivative(scores, target) + 0.5 * np.tanh(scores)

    weights = (1.0, 2.0)
    assert derivative_kind(WeightedLoss(LogisticLoss(), weights)) is LossDerivative.ONE_SIGN
    assert derivative_kind(Tilted(LogisticLoss(), weights)) is LossDerivative.ANY


@pytest.mark.parametrize("bounds", [{}, {"smoothness": 1e3}, {"lipschitz": 1e3}])
def test_a_loss_with_a_derivative_of_its_own_states_its_bounds(bounds):
    # Objective perturbation, averaged ADMM, random walks and the last iterate rest on them.
    own = {"derivative": lambda self, scores, target: 1e3 * (scores - target)}
    with pytest.raises(TypeError, match=r"^Got a class Steep with .* expected its (smooth|lip)"):
        type("Steep", (SquaredLoss,), own | bounds)
