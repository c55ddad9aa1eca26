"""The only file that imports scikit-learn's private helpers.

They may move with any release of scikit-learn. Works on 1.6.1 to 1.9.1; what is public there
(``validate_data``, ``check_is_fitted``, tags) is imported directly where it is used.
"""

from __future__ import annotations

from sklearn.base import _fit_context
from sklearn.utils._param_validation import HasMethods, Interval, Options, StrOptions

__all__ = ["HasMethods", "Interval", "Options", "StrOptions", "_fit_context"]
