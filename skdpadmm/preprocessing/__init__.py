"""Row-wise transformers that use only public facts and spend no privacy budget.

They map each row by itself, with bounds and categories from the user. Neighbouring data sets stay
neighbouring, so the guarantee of the next estimator covers the whole pipeline.

.. warning::
   Transformers that *learn from data* are different. ``StandardScaler``, ``MinMaxScaler``,
   ``OneHotEncoder(categories="auto")``, ``SimpleImputer`` and their like let every row influence
   how every other row is mapped. What they learn is released with the pipeline without noise, and
   is outside any privacy report of this package. Use declared bounds and declared categories.
"""

from __future__ import annotations

from ._bounds import PrivateBounds, private_bounds
from ._table import PublicTableTransformer, Range
from ._transformers import BoundedScaler

__all__ = [
    "BoundedScaler",
    "PrivateBounds",
    "PublicTableTransformer",
    "Range",
    "private_bounds",
]
