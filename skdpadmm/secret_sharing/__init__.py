"""Additive secret sharing: sums of vectors of which nobody sees a single one."""

from skdpadmm.secret_sharing._additive import (
    Transcript,
    add_shares,
    centred,
    check_modulus,
    is_modulus,
    residues_of,
    share_and_sum,
    split,
    uniform_residues,
)

__all__ = [
    "Transcript",
    "add_shares",
    "centred",
    "check_modulus",
    "is_modulus",
    "residues_of",
    "share_and_sum",
    "split",
    "uniform_residues",
]
