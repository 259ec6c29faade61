"""PyMC, and models around a prior."""

import warnings

import numpy as np
import pytest

Y = {"y": np.random.default_rng(0).normal(size=60)}


@pytest.fixture(scope="session")
def pm():
    """PyMC, imported once and late: it takes four seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("pymc")


@pytest.fixture(scope="session")
def around():
    """A function that makes a model of normal rows around a prior."""
    return _around


def _around(pm, make, rows=Y):
    """Return a model that observes normal rows, with the variables that `make` defines."""
    with warnings.catch_warnings(), pm.Model() as model:
        warnings.simplefilter("ignore")
        data = {name: pm.Data(name, value) for name, value in rows.items()}
        free = make(pm, **data) if make.__code__.co_argcount > 1 else make(pm)
        if not model.observed_RVs:
            pm.Normal("obs", free.sum() if free is not None else 0.0, 1.0, observed=data["y"])
    return model
