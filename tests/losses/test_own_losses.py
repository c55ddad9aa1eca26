"""Losses of a user's own: which target they receive, and which theorems hold for them."""

import numpy as np

from skdpadmm import DPAdmmLogisticRegression, DPAdmmRidge
from skdpadmm.losses import HuberLoss, LogisticLoss
from skdpadmm.privacy import LossDerivative


def test_only_losses_of_a_residual_get_a_scaled_target():
    seen = {}

    class Recorded(HuberLoss):
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
        smoothness = 25.0

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
