"""Each planted bug is found by the property that promises to find it."""

from __future__ import annotations

import pytest

from skdpadmm.protocol import PlanViolation
from tests.bugs.table import BUGS
from tests.contract import test_contract as contract
from tests.contract.harness import Diverged

FOUND = (AssertionError, Diverged, PlanViolation)
CASES = [(bug, row) for bug in BUGS for row in bug.rows]


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("bug", "row"), CASES, ids=[f"{bug.id} on {row}".replace(" ", "-") for bug, row in CASES]
)
def test_a_planted_bug_is_found(bug, row, monkeypatch):
    promise = getattr(contract, bug.found_by)
    changed = bug.row(row)
    if bug.knobs or bug.params:
        # The contract itself has no such row: without the bug nothing is found.
        promise(changed)
    bug.plant(monkeypatch)
    with pytest.raises(FOUND):
        promise(changed)


def test_names_of_bugs_are_told_apart():
    assert len({bug.id for bug in BUGS}) == len(BUGS)
