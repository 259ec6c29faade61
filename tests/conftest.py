"""Fixtures: small data sets and the exact posteriors that belong to them."""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import install_import_hook

# Shapes in signatures are checked in all tests. Left out are the doors, whose own checks are tested, and
# the Gibbs samplers in NumPy, whose inner loops would spend their time being checked.
ROOMS = ["aggregators", "combiners", "diagnostics", "model", "result", "start", "target"]
ROOMS += ["samplers.base", "samplers.nuts", "samplers.truncated_normal", "samplers.wishart_exact"]
with install_import_hook([f"vcmc.{room}" for room in ROOMS], "beartype.beartype"):
    import vcmc

jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".cache" / "jax"))


def pytest_configure(config: pytest.Config) -> None:
    """A doubtful result fails the test that did not ask for one."""
    config.addinivalue_line("filterwarnings", "error::vcmc.DoubtfulWarning")


class Conjugate(NamedTuple):
    """A linear regression with known noise: its posterior is a known Gaussian."""

    model: vcmc.Model
    rows: dict[str, np.ndarray]
    prior_precision: np.ndarray

    def posterior(self, indices=slice(None), prior_power=1.0):
        """Mean and covariance, given some rows and a power of the prior."""
        x, y = self.rows["x"][indices], self.rows["y"][indices]
        covariance = np.linalg.inv(x.T @ x + prior_power * np.diag(self.prior_precision))
        return covariance @ x.T @ y, covariance


@pytest.fixture(scope="session")
def conjugate() -> Conjugate:
    generator = np.random.default_rng(3)
    num_rows = 1003
    x = generator.normal(size=(num_rows, 3)) @ [[1.0, 0.8, 0.0], [0.0, 0.6, 0.3], [0.0, 0.0, 1.0]]
    y = x @ [1.0, -2.0, 0.5] + generator.normal(size=num_rows)
    precision = np.array([1.0, 4.0, 0.25])
    model = vcmc.Model(
        space={"beta": vcmc.Real(3)},
        log_prior=lambda params: -0.5 * jnp.sum(precision * params["beta"] ** 2),
        log_likelihood=lambda params, rows: -0.5 * (rows["y"] - rows["x"] @ params["beta"]) ** 2,
    )
    return Conjugate(model, {"x": x, "y": y}, precision)
