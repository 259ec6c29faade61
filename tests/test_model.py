"""The laws of `vcmc.testing` hold, and log densities agree with NumPyro's."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import potential_energy

import vcmc
from vcmc.density import Subposterior, evaluate, hessian_products
from vcmc.executors import Local
from vcmc.target import Target
from vcmc.testing import check_model

NUM_ROWS = 203


def constrained(x, y=None):
    """Positive, simplex and correlation-matrix parameters."""
    scale = numpyro.sample("scale", dist.HalfCauchy(2.0))
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
    cholesky = numpyro.sample("cholesky", dist.LKJCholesky(3, 2.0))
    bound = numpyro.sample(
        "bound", dist.Uniform(0.0, scale)
    )  # a support that depends on a parameter
    with numpyro.plate("rows", x.shape[0]):
        mean = x @ (weights + cholesky[1] * bound)
        numpyro.sample("y", dist.StudentT(4.0, mean, scale), obs=y)


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(0)
    return {"x": generator.normal(size=(NUM_ROWS, 3)), "y": generator.normal(size=NUM_ROWS)}


def plain(rows):
    del rows
    return vcmc.Model(
        space={"scale": vcmc.Positive(), "beta": vcmc.Real(3), "mix": vcmc.Simplex(3)},
        log_prior=lambda params: (
            -params["scale"] - jnp.sum(params["beta"] ** 2) + jnp.log(params["mix"][0])
        ),
        log_likelihood=lambda params, rows: dist.Normal(
            rows["x"] @ (params["beta"] + params["mix"]), params["scale"]
        ).log_prob(rows["y"]),
    )


MODELS = {"plain": plain, "numpyro": lambda rows: vcmc.from_numpyro(constrained, rows)}


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=name, marks=pytest.mark.slow if name == "numpyro" else ())
        for name, make in MODELS.items()
    ],
)
def test_it_keeps_the_laws(make, rows):
    """203 is a multiple of none of these numbers of shards but 1: the shards are uneven."""
    model = make(rows)
    for num_shards in (1, 4, 11):
        check_model(model, rows, num_shards=num_shards)


def test_uneven_groups_add_up_too(rows):
    model = plain(rows)
    groups = np.minimum(np.arange(NUM_ROWS) // 10, 5)
    partition = vcmc.split(rows, 6, groups=groups)
    assert max(partition.sizes) > 10 * min(partition.sizes)
    point = jax.random.normal(jax.random.key(1), (1, model.space.dim))
    shards = [partition.load(k) for k in range(6)]
    whole = Subposterior(model, vcmc.split(rows, 1).load(0), jnp.asarray(1.0))
    np.testing.assert_allclose(
        Target(model, shards, Local())(point)[0], evaluate(whole, point)[0], rtol=1e-12
    )


def test_numpyro_log_density_is_numpyros_own(rows):
    model = vcmc.from_numpyro(constrained, rows)
    whole = Subposterior(model, vcmc.split(rows, 1).load(0), jnp.asarray(1.0))
    for seed in range(3):
        point = jax.random.normal(jax.random.key(seed), (model.space.dim,))
        parts, start = {}, 0
        for name, space in model.space.items():
            parts[name] = point[start : start + space.dim].reshape(space.point_shape)
            start += space.dim
        energy = potential_energy(constrained, (), rows, parts)
        np.testing.assert_allclose(whole(point), -energy, rtol=1e-12)


@pytest.mark.slow
def test_rows_beyond_the_cache_are_added_up_in_blocks(rows, monkeypatch):
    """Values, scores and Hessian products are those of all rows at once, with an uneven block."""
    shard = vcmc.split(rows, 2).load(1)
    point, directions = jnp.linspace(-0.5, 0.5, 6), jnp.eye(6)[:2]

    def evaluations():
        density = Subposterior(plain(rows), shard, jnp.asarray(0.5))
        both = jax.jit(jax.value_and_grad(density))(point)
        few = evaluate(density, jnp.stack([point, -point]))
        many = evaluate(density, jnp.linspace(-1, 1, 12)[:, None] * point)
        return jax.tree.leaves((both, few, many, hessian_products(density, point, directions)))

    whole = evaluations()
    monkeypatch.setattr("vcmc.model.MAX_CACHED_BYTES", 0)
    monkeypatch.setattr("vcmc.model.BLOCK_BYTES", 64 * 40)  # 64 rows of 40 bytes
    monkeypatch.setattr("vcmc.model.BATCHED_BLOCK_BYTES", 128 * 40)
    text = str(jax.make_jaxpr(Subposterior(plain(rows), shard, jnp.asarray(0.5)))(point))
    assert "custom_jvp" in text
    for one, other in zip(evaluations(), whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11)
