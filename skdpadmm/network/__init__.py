"""Ownership of rows, communication graphs, mixing matrices, and similarities of agents."""

from __future__ import annotations

from skdpadmm.network._mixing import MixingMatrix, draw_walk, mixing_matrix
from skdpadmm.network._ownership import (
    PARTITIONS,
    Ownership,
    agent_sizes,
    condition_of,
    ownership_of_labels,
    partition_rows,
    positions_of_labels,
)
from skdpadmm.network._similarity import (
    SIMILARITIES,
    Similarity,
    angle_similarity,
    gaussian_similarity,
    knn_similarity,
    labels_of_relation,
    resolve_similarity,
)
from skdpadmm.network._topology import (
    TOPOLOGIES,
    Topology,
    honest_messages,
    named_graph,
    resolve_topology,
)

__all__ = [
    "PARTITIONS",
    "SIMILARITIES",
    "TOPOLOGIES",
    "MixingMatrix",
    "Ownership",
    "Similarity",
    "Topology",
    "agent_sizes",
    "angle_similarity",
    "condition_of",
    "draw_walk",
    "gaussian_similarity",
    "honest_messages",
    "knn_similarity",
    "labels_of_relation",
    "mixing_matrix",
    "named_graph",
    "ownership_of_labels",
    "partition_rows",
    "positions_of_labels",
    "resolve_similarity",
    "resolve_topology",
]
