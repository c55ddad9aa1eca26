"""What tests of guarantees share."""

import importlib
import pkgutil
import sys

import pytest

import skdpadmm.privacy


def forget_distributions():
    """Empty every cache of the room."""
    for found in pkgutil.iter_modules(skdpadmm.privacy.__path__, "skdpadmm.privacy."):
        for value in vars(importlib.import_module(found.name)).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


@pytest.fixture
def no_library(monkeypatch):
    """As if dp-accounting were not installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "dp_accounting"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    forget_distributions()
    yield
    forget_distributions()
