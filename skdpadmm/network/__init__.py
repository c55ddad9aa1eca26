"""Who owns which row of X: agents named by the user, or simulated by a partition."""

from __future__ import annotations

from skdpadmm.network._ownership import Ownership, ownership_of_labels
from skdpadmm.network._partition import PARTITIONS, agent_sizes, partition_rows

__all__ = [
    "PARTITIONS",
    "Ownership",
    "agent_sizes",
    "ownership_of_labels",
    "partition_rows",
]
