"""Guarantees that differ from peer to peer."""

from __future__ import annotations

from typing import Protocol

from skdpadmm.privacy._guarantee import Guarantee


class Pairs(Protocol):
    """What each peer can learn of each agent."""

    def guarantee(self, agent: int, peer: int) -> Guarantee:
        """Return what ``peer`` can learn of ``agent``, by their positions among sorted labels."""
        ...
