"""Federated estimators: rows stay with agents, and a server coordinates."""

from skdpadmm.federated._elastic_net import DPFedElasticNet
from skdpadmm.federated._lasso import DPFedLasso
from skdpadmm.federated._logistic_regression import DPFedLogisticRegression
from skdpadmm.federated._ridge import DPFedRidge

__all__ = ["DPFedElasticNet", "DPFedLasso", "DPFedLogisticRegression", "DPFedRidge"]
