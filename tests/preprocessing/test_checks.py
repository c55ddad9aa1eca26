from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdpadmm.preprocessing import BoundedScaler, RowNormClipper


@parametrize_with_checks(
    [
        BoundedScaler(),
        BoundedScaler(lower=-1.0, upper=3.0),
        RowNormClipper(),
        RowNormClipper(norm=3),
    ]
)
def test_scikit_learn_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("transformer", "sparse"),
    [
        (BoundedScaler(lower=-2, upper=2), True),
        (BoundedScaler(lower=[-1, -5], upper=[1, 5]), True),
        (BoundedScaler(lower=0, upper=2), False),
        (BoundedScaler(lower=[-1, -5], upper=[1, 4]), False),
        (BoundedScaler(lower="nonsense"), False),
        (RowNormClipper(), True),
    ],
)
def test_tags_are_truthful(transformer, sparse):
    tags = transformer.__sklearn_tags__()
    assert tags.input_tags.sparse is sparse
    assert tags.requires_fit is False
    assert tags.target_tags.required is False
