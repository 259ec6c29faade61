"""PyMC models that cannot be sharded are refused, with a reason."""

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc

generator = np.random.default_rng(0)
Y = {"y": generator.normal(size=60)}
X, OUTCOMES = generator.normal(size=(400, 2)), generator.integers(0, 2, 400)


def logistic(pm):
    with pm.Model() as model:
        x, y = pm.Data("x", X), pm.Data("y", OUTCOMES)
        pm.Bernoulli("obs", logit_p=x @ pm.Normal("beta", shape=x.shape[1]), observed=y)
    return model


def latent_per_row(pm, y):
    pm.Normal("obs", pm.Normal("effect", 0, 1, shape=y.shape[0]), 1.0, observed=y)


def latent_of_fixed_size(pm, y):
    pm.Normal("obs", pm.Normal("effect", 0, 1, shape=60), 1.0, observed=y)


def fixed_shape(pm, y):
    pm.Normal("obs", pm.Normal("mean"), 1.0, shape=60, observed=y)


def discrete(pm, y):
    pm.Normal("obs", pm.Bernoulli("kind", 0.5), 1.0, observed=y)


def baked_in(pm, y):
    pm.Normal("obs", pm.Normal("mean"), 1.0, observed=np.zeros(60))


def not_in_rows(pm, y):
    pm.Normal("obs", pm.Normal("mean"), 1.0, observed=pm.Data("other", np.zeros(60)))


def covariate_not_in_rows(pm, y):
    pm.Normal("obs", pm.Normal("mean") * pm.Data("other", np.zeros(60)), 1.0, observed=y)


def joint(pm, y):
    size = y.shape[0]
    import pytensor.tensor as pt

    pm.MvNormal("obs", pm.Normal("mean") * pt.ones(size), cov=pt.eye(size), observed=y)


def random_walk(pm, y):
    pm.GaussianRandomWalk("obs", sigma=pm.HalfNormal("s"), init_dist=pm.Normal.dist(), observed=y)


def columns_beside_rows(pm, y):
    pm.Normal("obs", pm.Normal("mean") * y[:, None], 1.0, observed=y[:, None] + y[None, :])


def scaled(pm, y):
    pm.Normal("obs", pm.Normal("mean"), 1.0, observed=y, total_size=600)


def minibatch(pm, y):
    pm.Normal("obs", pm.Normal("mean"), 1.0, observed=pm.Minibatch(Y["y"], batch_size=10))


def missing(pm, y):
    pm.Normal("obs", pm.Normal("mean"), 1.0, observed=np.ma.masked_greater(Y["y"], 1.0))


def prior_sees_rows(pm, y):
    pm.Normal("obs", pm.Normal("mean", 0.0, y.std()), 1.0, observed=y)


def bounds_see_rows(pm, y):
    pm.Normal("obs", pm.Uniform("mean", 0.0, abs(y).max()), 1.0, observed=y)


def improper(pm, y):
    pm.Normal("obs", pm.Flat("mean"), 1.0, observed=y)


def nothing_free(pm, y):
    pm.Normal("obs", 0.0, 1.0, observed=y)


def black_box(pm, y):
    import pytensor.tensor as pt
    from pytensor.compile.ops import wrap_py

    double = wrap_py(itypes=[pt.dscalar], otypes=[pt.dscalar])(lambda value: 2 * value)
    pm.Normal("obs", double(pm.Normal("mean")), 1.0, observed=y)


def simulator(pm, y):
    pm.Simulator(
        "obs",
        lambda rng, mean, size=None: rng.normal(mean, size=size),
        pm.Normal("mean"),
        observed=y,
    )


def bounded_without_transform(pm, y):
    import pytensor.tensor as pt

    a = pm.CustomDist("a", logp=lambda value: pt.log(value) + pt.log(1 - value))
    pm.Normal("obs", a, 1.0, observed=y)


def some_bounds(pm, y):
    a = pm.TruncatedNormal("a", 0.0, 1.0, lower=np.array([0.0, -np.inf]), shape=2)
    pm.Normal("obs", a.sum(), 1.0, observed=y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            latent_per_row,
            r"'effect' has one value per row \(shape \(5,\) for 5 rows, \(7,\) for "
            r"7\).*integrate it out",
        ),
        (latent_of_fixed_size, "must run on any number of rows.*hard-coded"),
        (fixed_shape, "must run on any number of rows.*hard-coded"),
        (covariate_not_in_rows, r"Are \['other'\] per row\? Name them in rows, too"),
        (discrete, "'kind' is discrete.*sum it out"),
        (baked_in, "'obs' observes an array that is fixed in the model.*pm.Data"),
        (not_in_rows, r"'obs' observes pm.Data \['other'\], which is not among the rows"),
        (joint, "one joint distribution over all rows"),
        (random_walk, "one joint distribution over all rows"),
        (columns_beside_rows, r"\(N, 1\) and \(N,\)"),
        (scaled, "total_size, pm.Minibatch"),
        (minibatch, "total_size, pm.Minibatch"),
        (missing, "PyMC imputes missing values of 'obs'"),
        (prior_sees_rows, "the prior depends on the rows.*pm.Data not in rows"),
        (bounds_see_rows, "the prior depends on the rows"),
        (improper, "improper prior, pm.Flat: give it a proper one"),
        (nothing_free, "must have a free random variable"),
        (black_box, "PyTensor cannot run in JAX"),
        (simulator, "PyTensor cannot run in JAX.*Random"),
        (bounded_without_transform, r"'a' has no density at .*space=\{'a': vcmc.Interval"),
        (some_bounds, "some values of 'a' have bounds and others have none"),
    ],
)
def test_what_cannot_be_sharded_is_refused_with_a_reason(pm, make, message, around):
    with pytest.raises(ValueError, match=message):
        vcmc.from_pymc(around(pm, make), Y)


def test_a_latent_value_per_row_is_refused_though_its_dims_have_a_fixed_length(pm):
    with pm.Model(coords={"row": np.arange(60)}) as model:
        y = pm.Data("y", Y["y"], dims="row")
        pm.Normal("obs", pm.Normal("effect", dims="row"), 1.0, observed=y)
    with pytest.raises(ValueError, match=r"'effect' has one value per row \(dims \['row'\]\)"):
        vcmc.from_pymc(model, Y)


def test_a_model_that_observes_nothing_or_has_no_data_is_refused(pm):
    with pm.Model() as model:
        pm.Normal("mean")
    with pytest.raises(ValueError, match=r"the model has no pm\.Data"):
        vcmc.from_pymc(model, Y)
    with model:
        pm.Data("y", Y["y"])
    with pytest.raises(ValueError, match="must observe its rows"):
        vcmc.from_pymc(model, Y)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"z": Y["y"]}, r"must be those of pm.Data in the model, \['x', 'y'\]; got \['z'\]"),
        ({"x": X, "y": OUTCOMES[:9]}, "must have the same number of rows"),
        ({"x": X[:, 0], "y": OUTCOMES}, r"rows\['x'\] must have 2 axes.*got shape \(400,\)"),
        ({"x": X, "y": OUTCOMES + 0.5}, r"rows\['y'\] must hold integers"),
        ({"x": X}, r"observes pm.Data \['y'\], which is not among the rows"),
    ],
)
def test_rows_that_do_not_fit_are_refused(pm, rows, message):
    with pytest.raises(ValueError, match=message):
        vcmc.from_pymc(logistic(pm), rows)


def test_a_space_may_be_said_where_pymc_has_no_transform(pm, around):
    model = around(pm, bounded_without_transform)
    found = vcmc.from_pymc(model, Y, space={"a": vcmc.Interval(0, 1)})
    np.testing.assert_allclose(found.log_prior({"a": jnp.asarray(0.25)}), np.log(0.25 * 0.75))


def test_data_of_a_fixed_shape_are_refused(pm):
    with pm.Model() as model:
        y = pm.Data("y", Y["y"], shape=(60,))
        pm.Normal("obs", pm.Normal("mean"), 1.0, observed=y)
    with pytest.raises(ValueError, match=r"has a fixed number of rows, 60.*leave out its shape="):
        vcmc.from_pymc(model, Y)
