"""Each planted bug is found by the property that promises to find it."""

import importlib
from pathlib import Path

import pytest

from skdpadmm.network import honest_messages
from skdpadmm.privacy import _token_walk
from skdpadmm.protocol import PlanViolation
from tests.bugs.table import BUGS, THEOREM_BUGS
from tests.contract import test_contract as contract
from tests.contract.harness import Diverged

FOUND = (AssertionError, Diverged, PlanViolation, pytest.fail.Exception)
CASES = [(bug, row) for bug in BUGS for row in bug.rows]


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("bug", "row"), CASES, ids=[f"{bug.id} on {row}".replace(" ", "-") for bug, row in CASES]
)
def test_a_planted_bug_is_found(bug, row, monkeypatch):
    promise = getattr(contract, bug.found_by)
    changed = bug.row(row)
    assert contract.applies(promise, changed)
    if bug.knobs or bug.params or bug.fields:
        # The contract itself has no such row: without the bug nothing is found.
        promise(changed)
    bug.plant(monkeypatch)
    with pytest.raises(FOUND):
        promise(changed)


@pytest.mark.mutant
@pytest.mark.parametrize("bug", THEOREM_BUGS, ids=lambda bug: bug.id.replace(" ", "-"))
def test_a_bug_in_what_a_theorem_rests_on_is_found(bug, monkeypatch, tmp_path_factory):
    module, _, name = bug.found_by.rpartition(".")
    tests = importlib.import_module(module)
    # A name stands for what the module calls so, and a place after it for one of these.
    arguments = [getattr(tests, a, a) if isinstance(a, str) else a for a in bug.arguments]
    if bug.arguments[:1] == ("SMALL",):
        arguments = tests.SMALL[bug.arguments[1]]

    def run(patch):
        places = {pytest.MonkeyPatch: patch, Path: tmp_path_factory.mktemp("bug")}
        known = [places.get(a, a) if isinstance(a, type) else a for a in arguments]
        getattr(tests, name)(*known)

    # Without the bug nothing is found.
    with monkeypatch.context() as patch:
        run(patch)
    bug.plant(monkeypatch)
    forget()
    with pytest.raises(FOUND):
        run(monkeypatch)
    forget()


def forget():
    """Costs of walks and of pairs are remembered, those with a bug in them too."""
    for remembered in (_token_walk._pair_cost, _token_walk._worst_cost, honest_messages):
        getattr(remembered, "cache_clear", int)()


def test_names_of_bugs_are_unique():
    names = [bug.id for bug in (*BUGS, *THEOREM_BUGS)]
    assert len(set(names)) == len(names)
