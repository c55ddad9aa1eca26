"""The import paths that users rely on."""

import importlib

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils import estimator_html_repr

import skdpadmm
from skdpadmm._sklearn import DOCUMENTATION
from skdpadmm.model_selection import DPGridSearchCV
from skdpadmm.preprocessing import BoundedScaler
from tests.interface.registry import DEFAULTS

PUBLIC = {
    "central": "DPAdmmElasticNet DPAdmmGammaRegressor DPAdmmGeneralizedLasso DPAdmmHuberRegressor"
    " DPAdmmLasso DPAdmmLinearSVC DPAdmmLogisticRegression DPAdmmPoissonRegressor"
    " DPAdmmQuantileRegressor DPAdmmRidge DPAdmmTweedieRegressor",
    "federated": "DPFedElasticNet DPFedLasso DPFedLogisticRegression DPFedRidge",
    "decentralized": "DPDecentralizedClassifier DPDecentralizedRegressor",
    "personalized": "DPPersonalizedClassifier DPPersonalizedRegressor LocalClassifier"
    " LocalRegressor",
    "preprocessing": "BoundedScaler PrivateBounds PublicTableTransformer Range private_bounds",
    "model_selection": "DPGridSearchCV DPRandomizedSearchCV search_cost",
    "inspection": "PrivacyLedgerDisplay PrivacyReportDisplay PrivacyUtilityDisplay TopologyDisplay"
    " plot_network privacy_report",
    "audit": "AuditReport audit",
    "ledger": "LedgerError PrivacyBudgetExceeded PrivacyLedger",
    "algorithms": "Algorithm AveragedADMM ConsensusADMM CoordinateDescent"
    " DecentralizedGradientDescent FederatedADMM GradientADMM GradientDescent LocalModels"
    " MultiStepADMM ObjectivePerturbation PersonalizedCoordinateDescent RandomWalkADMM"
    " RandomWalkProximalPoint RandomizedADMM RandomizedGradientDescent RandomizedSGD"
    " SecretSharingGradientDescent",
    "losses": "HuberLoss LogisticLoss MultinomialLoss OneVsRestHinge SmoothedHinge SmoothedPinball"
    " SquaredLoss TweedieLoss",
    "penalties": "L1 ElasticNet GeneralizedL1 LinearConstraint NoPenalty SquaredL2"
    " difference_matrix",
    "network": "Similarity Topology angle_similarity gaussian_similarity knn_similarity"
    " mixing_matrix named_graph partition_rows",
    "privacy": "GaussianDP Guarantee LaplaceDP Neighboring PrivacyReport compose gaussian_mu"
    " calibrate_noise",
    "protocol": "Facts Gate Plan PlanViolation Problem Solution",
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_where_users_import_them_from(module):
    found = importlib.import_module(f"skdpadmm.{module}")
    assert set(PUBLIC[module].split()) <= set(found.__all__)
    if module in ("central", "federated", "decentralized", "personalized"):
        assert PUBLIC[module].split() == found.__all__
    assert all(hasattr(found, name) for name in found.__all__)


def test_estimators_are_at_the_top_and_each_has_a_row():
    estimators = {name for name in skdpadmm.__all__ if name.startswith("DP")}
    families = ("central", "federated", "decentralized", "personalized")
    assert estimators == {
        name for family in families for name in PUBLIC[family].split() if name.startswith("DP")
    }
    assert all(issubclass(getattr(skdpadmm, name), BaseEstimator) for name in estimators)
    assert estimators == {type(row.estimator).__name__ for row in DEFAULTS.values()}


def test_diagrams_link_to_pages_of_this_packages_reference():
    search = DPGridSearchCV(skdpadmm.DPAdmmRidge(), {"alpha": [0.0]})
    made = [row.estimator for row in DEFAULTS.values()]
    for estimator in (*made, BoundedScaler(), search):
        name = type(estimator).__name__
        (module,) = (m for m in PUBLIC if name in PUBLIC[m].split())
        page = f"{DOCUMENTATION}/generated/skdpadmm.{module}.{name}.html"
        assert f'href="{page}"' in estimator_html_repr(estimator)
