"""How many labels are wrong, without knowing a single right one: counts of disagreement, or two humps of a score."""

import warnings
from dataclasses import dataclass

import numpy as np

# Ashman's D: two normal components are told apart above it (Ashman, Bird & Zepf 1994).
SEPARATED = 2.0


@dataclass(frozen=True)
class TwoHumps:
    """A mixture of two normals fitted to a hardness score; `upper` is each sample's probability of the harder one.

    `separation` is Ashman's D; `count` is how many samples are harder than the easy mean and more probably of the
    harder hump, and 0 where the humps are not separated: one skewed hump must not be cut in two.
    """

    upper: np.ndarray
    separation: float
    count: int


def fit_two_humps(hardness: np.ndarray) -> TwoHumps:
    """Two normals by expectation-maximisation from fixed quantiles, so the same scores give the same answer.

    Samples without a score have `upper` NaN. Fewer than 4 different values cannot show two humps.
    """
    upper = np.full(len(hardness), np.nan)
    known = np.isfinite(hardness)
    values = hardness[known]
    if len(np.unique(values)) < 4:
        upper[known] = 0.0
        return TwoHumps(upper, 0.0, 0)
    # Standardised: the covariance floor of the fit is absolute.
    values = (values - values.mean()) / values.std()
    weights, means, variances = _expectation_maximisation(values)
    upper[known] = _posterior(values, weights, means, variances)
    separation = float((means[1] - means[0]) / np.sqrt(variances.mean()))
    harder = (upper[known] > 0.5) & (values > means[0])
    return TwoHumps(upper, separation, int(harder.sum()) if separation > SEPARATED else 0)


def _expectation_maximisation(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    # Wrong labels are the smaller, harder part: the start says so, the data decide.
    start = np.quantile(values, [0.25, 0.95])
    if start[0] == start[1]:
        start = np.array([values.min(), values.max()])
    model = GaussianMixture(2, means_init=start.reshape(2, 1), random_state=0, max_iter=500, tol=1e-7, reg_covar=1e-6)
    with warnings.catch_warnings():
        # Heavily overlapping humps move for ever by tiny steps; they are called not separated afterwards.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(values.reshape(-1, 1))
    order = np.argsort(model.means_.ravel())
    return model.weights_[order], model.means_.ravel()[order], model.covariances_.ravel()[order]


def _posterior(values: np.ndarray, weights: np.ndarray, means: np.ndarray, variances: np.ndarray) -> np.ndarray:
    logs = np.log(weights) - 0.5 * np.log(variances) - 0.5 * (values[:, None] - means) ** 2 / variances
    return 1 / (1 + np.exp(np.clip(logs[:, 0] - logs[:, 1], -700, 700)))
