# SPDX-License-Identifier: GPL-2.0-only
"""How much better an action did than its state let expect."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MAX_WEIGHT = 20.0
RIDGE = 1e-3

Floats = npt.NDArray[np.float64]


def _basis(x: npt.NDArray[np.float32]) -> Floats:
    x = x.astype(np.float64)
    return np.concatenate([np.ones((len(x), 1)), x, x * x], axis=1)


@dataclass(frozen=True)
class Value:
    """Expected return of a state: ridge regression on the inputs and their squares.

    Closed form and stiff on purpose: a baseline that fits every return leaves no advantage.
    """

    coefficients: Floats

    @classmethod
    def fit(cls, x: npt.NDArray[np.float32], returns: npt.NDArray[np.float32]) -> Value:
        """x [n, dense], returns [n]; n may be 0."""
        basis = _basis(x)
        gram = basis.T @ basis + RIDGE * max(len(x), 1) * np.eye(basis.shape[1])
        solution = np.linalg.solve(gram, basis.T @ returns.astype(np.float64))
        return cls(solution.astype(np.float64))

    def predict(self, x: npt.NDArray[np.float32]) -> Floats:
        """[n] expected returns."""
        return _basis(x) @ self.coefficients


def weights(
    value: Value,
    x: npt.NDArray[np.float32],
    returns: npt.NDArray[np.float32],
    beta: float,
) -> npt.NDArray[np.float32]:
    """[n] min(exp((G - V) / beta), 20), as in advantage-weighted regression."""
    advantage = returns - value.predict(x)
    return np.minimum(np.exp(advantage / beta), MAX_WEIGHT).astype(np.float32)
