"""
Persons with several rows
=========================

Some patients come once, others ten times. By default a fit protects one row, so patients who come
often are protected less. With ``persons``, it protects all rows of a patient together.
"""

# %%
# Patients with one to ten visits each, which share the age, the weight and the habits of a patient.
import numpy as np
from matplotlib import pyplot as plt
from sklearn.base import clone

from skdpadmm import DPAdmmRidge

rng = np.random.default_rng(0)


def visits(n_patients):
    """Rows, targets, and whose they are."""
    whose = np.repeat(np.arange(n_patients), rng.integers(1, 11, n_patients))
    X = rng.uniform(-1, 1, (n_patients, 3))[whose] + rng.uniform(-0.1, 0.1, (len(whose), 3))
    habit = rng.normal(0, 0.3, n_patients)[whose]
    return X, X @ [1.0, 0.5, -0.5] + habit + rng.normal(0, 0.2, len(whose)), whose


X, y, patients = visits(300)
X_test, y_test, _ = visits(1000)
row = DPAdmmRidge(feature_bounds=(-1.1, 1.1), target_bounds=(-3, 3))

# %%
# The plan depends on the number of patients and on the public limit of their rows, and on nothing
# else: how often each of them came stays private.
patient = clone(row).set_params(max_rows_per_person=10)
patient.plan(n_samples=None, n_features=3, n_persons=300)

# %%
# Accuracy against epsilon, mean of ten fits. The two epsilons mean different things: one limits
# what is learned about a patient, the other what is learned about a single visit.
epsilons = [0.1, 0.3, 1.0, 3.0, 10.0]
fig, ax = plt.subplots()
for name, model, known in (("visit", row, {}), ("patient", patient, {"persons": patients})):
    found = [
        [model.set_params(epsilon=e).fit(X, y, **known).score(X_test, y_test) for _ in range(10)]
        for e in epsilons
    ]
    ax.semilogx(epsilons, np.mean(found, axis=1), "o-", label=f"protects a {name}")
    print(name, np.mean(found, axis=1).round(2))
ax.set_xticks(epsilons, epsilons)
ax.minorticks_off()
ax.set(xlabel="epsilon", ylabel="R2 on new patients", ylim=(0, 1))
ax.set_title("Protecting a patient needs more noise")
ax.legend()
plt.show()
