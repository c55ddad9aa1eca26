"""What three hospitals agreed on: parameters, sizes, columns. Everyone runs this file."""

import pickle

import numpy as np
from sklearn.datasets import load_breast_cancer

from skdpadmm import DPFedLogisticRegression
from skdpadmm.algorithms import FederatedADMM
from skdpadmm.flower import client_app, server_app

NAMES = list(load_breast_cancer().feature_names)  # public: what is measured
SIZES = {"Bergen": 190, "Oslo": 190, "Tromso": 189}  # public: how many patients each has
LARGEST = [40, 50, 250, 3000, 0.3, 1, 1, 0.5, 0.5, 0.2]  # public: what can be measured at all

estimator = DPFedLogisticRegression(
    epsilon=8.0,
    delta=1e-5,
    classes=[0, 1],
    feature_bounds=(np.zeros(30), np.array(LARGEST + [v / 5 for v in LARGEST] + LARGEST) * 1.5),
    algorithm=FederatedADMM(edge_noise=0),  # no noise that pairs share, so no keys
    max_iter=10,
)


def load_rows(context):
    """Read the rows of one hospital, which never leave this process."""
    with np.load(context.node_config["rows"]) as own:
        return own["X"], own["y"]


def save(model, context):
    """Keep the model, which is safe to publish under its figure for "model"."""
    with open(context.run_config["result"], "wb") as file:
        pickle.dump(model, file)


client = client_app(estimator, load_rows, agent_sizes=SIZES)
server = server_app(estimator, save, agent_sizes=SIZES, columns=30)
