"""Pictures of what a fit released, and of what privacy costs; they need the extra ``[plot]``."""

from __future__ import annotations

from skdpadmm.inspection._display import PrivacyReportDisplay
from skdpadmm.inspection._ledger import PrivacyLedgerDisplay
from skdpadmm.inspection._privacy_utility import PrivacyUtilityDisplay
from skdpadmm.inspection._topology import TopologyDisplay, plot_network

__all__ = [
    "PrivacyLedgerDisplay",
    "PrivacyReportDisplay",
    "PrivacyUtilityDisplay",
    "TopologyDisplay",
    "plot_network",
]
