"""Pictures of guarantees, coefficients, networks and accuracy; they need the extra ``[plot]``."""

from __future__ import annotations

from skdpadmm.inspection._coefficients import CoefficientDisplay
from skdpadmm.inspection._display import PrivacyReportDisplay
from skdpadmm.inspection._fitted import FittedPart, FittedReport, privacy_report
from skdpadmm.inspection._ledger import PrivacyLedgerDisplay
from skdpadmm.inspection._privacy_utility import PrivacyUtilityDisplay
from skdpadmm.inspection._topology import TopologyDisplay
from skdpadmm.inspection._trade_off import TradeOffDisplay

__all__ = [
    "CoefficientDisplay",
    "FittedPart",
    "FittedReport",
    "PrivacyLedgerDisplay",
    "PrivacyReportDisplay",
    "PrivacyUtilityDisplay",
    "TopologyDisplay",
    "TradeOffDisplay",
    "privacy_report",
]
