import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from vcmc.models.frontends.enumeration import enumerated_log_likelihood
from vcmc.models.frontends.sites import Seeded


def mixture(y):
    centre = numpyro.sample("centre", dist.Normal(0, 5))
    with numpyro.plate("rows", y.shape[0]):
        kind = numpyro.sample("kind", dist.Bernoulli(0.3), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(centre * kind, 1.0), obs=y)


def test_discrete_values_are_summed_out_of_every_row():
    pytest.importorskip("funsor")
    log_likelihood = enumerated_log_likelihood(
        Seeded(mixture, {}), lambda params: dist.Normal(0, 5).log_prob(params["centre"]), 1
    )
    y = np.array([-1.0, 0.5, 3.0])
    values = log_likelihood({"centre": jnp.asarray(2.0)}, {"y": y})
    parts = [np.log(0.7) + norm.logpdf(y), np.log(0.3) + norm.logpdf(y, 2.0)]
    np.testing.assert_allclose(values, logsumexp(parts, axis=0), rtol=1e-10)
