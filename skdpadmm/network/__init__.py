"""Who owns which row of X, and who talks to whom."""

from __future__ import annotations

from skdpadmm.network._mixing import MixingMatrix, check_mixing, draw_walk, mixing_matrix
from skdpadmm.network._named_graphs import TOPOLOGIES, named_graph
from skdpadmm.network._ownership import Ownership, ownership_of_labels, positions_of_labels
from skdpadmm.network._partition import PARTITIONS, agent_sizes, partition_rows
from skdpadmm.network._topology import Topology, resolve_topology

__all__ = [
    "PARTITIONS",
    "TOPOLOGIES",
    "MixingMatrix",
    "Ownership",
    "Topology",
    "agent_sizes",
    "check_mixing",
    "draw_walk",
    "mixing_matrix",
    "named_graph",
    "ownership_of_labels",
    "partition_rows",
    "positions_of_labels",
    "resolve_topology",
]
