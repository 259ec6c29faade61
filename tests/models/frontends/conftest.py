"""PyMC, models around a prior, and a model with groups."""

import warnings
from types import SimpleNamespace

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import vcmc
from vcmc.data.grouped import GroupedPartition, encode_groups

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


def rows_of(num_groups=8, num_rows=5):
    generator = np.random.default_rng(0)
    group = np.repeat(np.arange(num_groups), num_rows)
    x, y = generator.normal(size=(2, len(group)))
    return {"group": group, "x": x, "y": y}


def shard_of(rows, table=None):
    encoded, labels = encode_groups(rows, "group", table)
    partition = vcmc.split(encoded, 1, groups="group")
    return GroupedPartition(partition, "group", labels, table).load(0)


def varying_means(group, x, y, *, num_groups):
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("groups", num_groups):
        alpha = numpyro.sample("alpha", dist.Normal(mu, tau))
    numpyro.sample("y", dist.Normal(alpha[group] + 0.3 * x, sigma), obs=y)


@pytest.fixture(scope="session")
def groups():
    """Rows in groups, their shard, and a NumPyro model of them."""
    return SimpleNamespace(rows=rows_of, shard=shard_of, model=varying_means)
