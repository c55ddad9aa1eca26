"""What agents send by secret sharing follows from what was released."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.contract.harness import record, replay
from tests.contract.registry import ROWS


def test_messages_follow_from_sums_that_were_released_and_from_no_hidden_model():
    (row,) = (row for row in ROWS if row.id == "sharing-graph-coalition")
    row = replace(row, params={"conditioning": None, "max_iter": 5, "alpha": 0.0})
    X, y = row.data()
    knobs = {"clip_norm": 5.0, "step_size": 0.7, "momentum": 0.5}
    still = record(row, X, y, algorithm=knobs)
    for gate in still.gates:
        gate.passages = [replace(p, out=np.zeros_like(p.out)) for p in gate.passages]
    # Sums of zero leave the public model where it is, and so all that agents say.
    values = [passage.value for passage in replay(row, still, X, y, algorithm=knobs).passages]
    for value in values[1:]:
        np.testing.assert_array_equal(value, values[0])
