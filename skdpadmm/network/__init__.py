"""Who owns which row of X, who talks to whom, and who is like whom."""

from __future__ import annotations

from skdpadmm.network._mixing import MixingMatrix, check_mixing, draw_walk, mixing_matrix
from skdpadmm.network._named_graphs import TOPOLOGIES, named_graph
from skdpadmm.network._named_similarities import (
    SIMILARITIES,
    angle_similarity,
    gaussian_similarity,
    knn_similarity,
)
from skdpadmm.network._ownership import Ownership, ownership_of_labels, positions_of_labels
from skdpadmm.network._partition import PARTITIONS, agent_sizes, condition_of, partition_rows
from skdpadmm.network._similarity import Similarity
from skdpadmm.network._similarity_input import labels_of_relation, resolve_similarity
from skdpadmm.network._topology import Topology, resolve_topology

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
    "check_mixing",
    "condition_of",
    "draw_walk",
    "gaussian_similarity",
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
