"""A fit and its report from an installed wheel without extras: run by `make wheel`."""

from importlib.util import find_spec
from pathlib import Path

from sklearn.datasets import load_digits

import skdpadmm

missing = [name for name in ("dp_accounting", "matplotlib", "numba") if find_spec(name)]
assert not missing, f"the environment has {missing}: extras were not asked for"
home = Path(skdpadmm.__file__).parent
assert (home / "py.typed").is_file(), "types are not shipped"
assert not Path(__file__).is_relative_to(home.parent), "the checkout was imported, not the wheel"

X, y = load_digits(return_X_y=True)
model = skdpadmm.DPAdmmLogisticRegression(classes=range(10), feature_bounds=(0, 16), epsilon=2.0)
print(model.fit(X, y).privacy_)
assert model.score(X, y) > 0.5
