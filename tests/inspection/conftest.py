"""Pictures that nobody sees."""

import pytest


@pytest.fixture(autouse=True)
def without_a_display():
    mpl = pytest.importorskip("matplotlib")
    with mpl.rc_context({"figure.max_open_warning": 0}):
        mpl.use("Agg")
        yield
        pytest.importorskip("matplotlib.pyplot").close("all")
