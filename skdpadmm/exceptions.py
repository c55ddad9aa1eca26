"""Warnings of this package, raised before data is read: they depend on parameters and shapes."""

import sys
import warnings

__all__ = ["PrivacyWarning", "UndeclaredBoundsWarning", "WeakSignalWarning"]


class PrivacyWarning(UserWarning):
    """Something public makes a fit useless, or its guarantee weaker than it looks.

    Examples
    --------
    >>> import warnings
    >>> from skdpadmm.exceptions import PrivacyWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", PrivacyWarning)  # in this block no fit warns
    """


class UndeclaredBoundsWarning(PrivacyWarning):
    """Bounds were not declared, so values are clipped to a range that suits standardised ones.

    Declare ranges that are public knowledge, never those of private data: ``feature_bounds`` as two
    numbers, two arrays, or a dict by column, and ``target_bounds``. Bounds of (-1, 1), and of
    (-3, 3) for a target, say that the data are standardised already, and end the warning. In place
    of ``feature_bounds`` pass ``row_norm`` where the norm of rows is known, as of text, or
    ``scale="private"`` where all columns have one unit.

    Examples
    --------
    >>> import warnings
    >>> from skdpadmm import DPAdmmRidge
    >>> from skdpadmm.exceptions import UndeclaredBoundsWarning
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     plan = DPAdmmRidge(feature_bounds=(-1, 1)).plan(5000, 3)
    >>> caught[0].category is UndeclaredBoundsWarning
    True
    """


class WeakSignalWarning(PrivacyWarning):
    """Noise of the whole fit is likely to hide what the records say.

    Examples
    --------
    >>> import warnings
    >>> from skdpadmm import DPAdmmRidge
    >>> from skdpadmm.exceptions import WeakSignalWarning
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     plan = DPAdmmRidge(feature_bounds=(-1, 1), target_bounds=(-1, 1)).plan(50, 3)
    >>> caught[0].category is WeakSignalWarning
    True
    """


def warn_user(text: str, category: type[Warning]) -> None:
    """Warn at the user's line, which is not in a library that called us."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in (
        "skdpadmm", "sklearn", "joblib",
    ):  # fmt: skip
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
