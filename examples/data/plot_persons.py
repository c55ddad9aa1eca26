"""
Persons with several rows
=========================

Patients come once or often. By default one row is protected, and who came ten times is protected
less. With ``persons`` all rows of a patient are protected together.
"""

# %%
# Patients with one to ten visits each, which share the age, the weight and the habit of a patient.

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


X, y, patients = visits(1000)
X_test, y_test, _ = visits(1000)
row = DPAdmmRidge(feature_bounds=(-1.1, 1.1), target_bounds=(-3, 3))

# %%
# The plan depends on the number of patients and on the public bound of their rows, and on nothing
# else: how often each of them came stays private.

patient = clone(row).set_params(max_rows_per_person=10)
print(patient.plan(n_samples=None, n_features=3, n_persons=1000))

# %%
# Accuracy against epsilon, over three fits each. To protect a patient takes the noise of a thousand
# rows, and to protect a row that of all rows: the two figures of epsilon mean different things.

epsilons = [0.1, 0.3, 1.0, 3.0, 10.0]
fig, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
for name, model, known in (("patient", patient, {"persons": patients}), ("row", row, {})):
    found = [
        [model.set_params(epsilon=e).fit(X, y, **known).score(X_test, y_test) for _ in range(3)]
        for e in epsilons
    ]
    ax.plot(epsilons, np.mean(found, axis=1), marker="o", label=f"protects a {name}")
    print(name, np.mean(found, axis=1).round(2))
ax.set(xscale="log", xlabel="epsilon", ylabel="R2 on new patients, mean of 3 fits", ylim=(0, 1))
ax.legend()
plt.show()
