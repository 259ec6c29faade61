import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import mask, reparam, scale, scope
from numpyro.infer.reparam import LocScaleReparam
from numpyro.infer.util import log_density
from scipy.stats import norm

import vcmc
from vcmc.executors import Local
from vcmc.target import Target

generator = np.random.default_rng(0)
ROWS = {"x": generator.normal(size=(60, 2)), "y": generator.normal(size=60)}


def log_likelihood(model, rows=ROWS, seed=0):
    params = model.space.constrain(jax.random.normal(jax.random.key(seed), (model.space.dim,)))
    return params, model.log_likelihood(params, rows)


def regression(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ beta, 2.0), obs=y)


def in_plate(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ beta, 2.0), obs=y)


def as_event(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ beta, 2.0).to_event(1), obs=y)


def rows_on_the_second_axis(x, y=None):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("columns", 1, dim=-2), numpyro.plate("rows", x.shape[0], dim=-1):
        numpyro.sample("y", dist.Normal((x @ beta)[None], 2.0), obs=y[None])


@pytest.mark.parametrize("model", [regression, in_plate, as_event, rows_on_the_second_axis])
def test_one_value_per_row_however_the_rows_are_written(model):
    params, values = log_likelihood(vcmc.from_numpyro(model, ROWS))
    expected = dist.Normal(ROWS["x"] @ params["beta"], 2.0).log_prob(ROWS["y"])
    np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_prior_is_that_of_the_latent_sites():
    model = vcmc.from_numpyro(regression, ROWS)
    params, _ = log_likelihood(model)
    np.testing.assert_allclose(
        model.log_prior(params), dist.Normal(0, 1).log_prob(params["beta"]).sum(), rtol=1e-12
    )


@pytest.mark.slow
def test_scaled_sites_keep_their_scale():
    def scaled(x, y=None):
        with scale(scale=3.0):
            regression(x, y)

    plain, tripled = (vcmc.from_numpyro(model, ROWS) for model in (regression, scaled))
    params, values = log_likelihood(plain)
    np.testing.assert_allclose(tripled.log_likelihood(params, ROWS), 3 * values, rtol=1e-12)
    np.testing.assert_allclose(tripled.log_prior(params), 3 * plain.log_prior(params), rtol=1e-12)


def test_scales_and_masks_of_rows_are_honoured():
    def model(x, y, weight, is_seen):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
        with scale(scale=weight), mask(mask=is_seen):
            numpyro.sample("y", dist.Normal(x @ beta, 2.0), obs=y)

    generator = np.random.default_rng(1)
    rows = ROWS | {"weight": generator.uniform(size=60), "is_seen": generator.random(60) < 0.5}
    params, values = log_likelihood(vcmc.from_numpyro(regression, ROWS))
    expected = rows["weight"] * np.where(rows["is_seen"], values, 0.0)
    found = vcmc.from_numpyro(model, rows).log_likelihood(params, rows)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


WEIGHTS = np.random.default_rng(1).uniform(size=60)
IS_SEEN = np.random.default_rng(2).random(60) < 0.5


def scaled_prior(x, y, weight, is_seen):
    with scale(scale=0.25):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ beta, 2.0), obs=y)


def scaled_likelihood(x, y, weight, is_seen):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
    with scale(scale=0.1):
        numpyro.sample("y", dist.Normal(x @ beta, 2.0), obs=y)


def nested_scales(x, y, weight, is_seen):
    with scale(scale=0.5):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
        with scale(scale=weight), numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ beta, 2.0), obs=y)


def masked_rows(x, y, weight, is_seen):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", x.shape[0]), mask(mask=is_seen):
        numpyro.sample("y", dist.Normal(x @ beta, 2.0), obs=y)


def masked_distribution(x, y, weight, is_seen):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ beta, 2.0).mask(is_seen), obs=y)


def masked_prior(x, y, weight, is_seen):
    with mask(mask=jnp.array([True, False])):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]))
    numpyro.sample("y", dist.Normal(x @ beta, 2.0), obs=y)


def masked_vectors(x, y, weight, is_seen):
    """Rows are vectors, all or nothing of which is seen."""
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
    with scale(scale=weight), mask(mask=is_seen):
        numpyro.sample("y", dist.Normal(x * beta, 2.0).to_event(1), obs=jnp.stack([y, y], 1))


@pytest.mark.parametrize(
    ("model", "prior_scales", "row_scales"),
    [
        (scaled_prior, [0.25, 0.25], np.ones(60)),
        (scaled_likelihood, [1, 1], np.full(60, 0.1)),
        (nested_scales, [0.5, 0.5], 0.5 * WEIGHTS),
        (masked_rows, [1, 1], IS_SEEN),
        (masked_distribution, [1, 1], IS_SEEN),
        (masked_prior, [1, 0], np.ones(60)),
        (masked_vectors, [1, 1], WEIGHTS * IS_SEEN),
    ],
)
def test_handlers_of_scale_and_mask_have_the_density_that_is_written_out(
    model, prior_scales, row_scales
):
    rows = ROWS | {"weight": WEIGHTS, "is_seen": IS_SEEN}
    converted = vcmc.from_numpyro(model, rows)
    beta = np.array([0.7, -0.2])
    params = {"beta": jnp.asarray(beta)}
    log_prior = np.dot(prior_scales, norm.logpdf(beta))
    if model is masked_vectors:
        per_row = norm.logpdf(ROWS["y"][:, None], ROWS["x"] * beta, 2.0).sum(axis=1)
    else:
        per_row = norm.logpdf(ROWS["y"], ROWS["x"] @ beta, 2.0)
    assert float(converted.log_prior(params)) == pytest.approx(log_prior, abs=1e-10)
    np.testing.assert_allclose(
        converted.log_likelihood(params, rows), row_scales * per_row, rtol=0, atol=1e-10
    )
    # three shards: the log density of all rows, by NumPyro itself
    target = Target(converted, vcmc.split(rows, 3), Local())
    expected, _ = log_density(model, (), rows, params)
    value = target(jnp.asarray(beta)[None])[0][0]
    assert float(value) == pytest.approx(float(expected), abs=1e-10)
    assert float(expected) == pytest.approx(log_prior + np.sum(row_scales * per_row), abs=1e-10)


def test_one_scale_of_an_event_of_all_rows_is_honoured_and_one_mask_refused():
    """The event axis is taken apart into rows; that of a masked distribution cannot be."""

    def model(x, y, *, handler):
        beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
        with handler:
            numpyro.sample("y", dist.Normal(x @ beta, 2.0).to_event(1), obs=y)

    params, values = log_likelihood(vcmc.from_numpyro(regression, ROWS))
    converted = vcmc.from_numpyro(model, ROWS, constants={"handler": scale(scale=0.5)})
    found = converted.log_likelihood(params, ROWS)
    np.testing.assert_allclose(found, 0.5 * values, rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match="'y' has one joint distribution over all rows"):
        vcmc.from_numpyro(model, ROWS, constants={"handler": mask(mask=jnp.array(False))})


def test_deterministic_sites_are_derived_unless_they_depend_on_rows():
    def model(x, y=None):
        spread = numpyro.sample("spread", dist.HalfNormal(1.0))
        effect = numpyro.sample("effect", dist.Normal(0, 1))
        numpyro.deterministic("variance", spread**2)
        numpyro.deterministic(
            "average", jax.nn.sigmoid(x[:, 0] + effect).mean() - jax.nn.sigmoid(x[:, 0]).mean()
        )
        mean = numpyro.deterministic("mean", x @ jnp.ones(2) * spread)  # one value per row
        numpyro.deterministic("total", x.sum() * spread)  # depends on which rows there are
        numpyro.sample("y", dist.Normal(mean, spread), obs=y)

    with pytest.warns(UserWarning, match="'average', 'mean', 'total' depend on the rows") as warned:
        derived = vcmc.from_numpyro(model, ROWS).derived
    assert [each.filename for each in warned if "'average'" in str(each.message)] == [__file__]
    assert {
        name: float(value)
        for name, value in derived({"spread": jnp.asarray(3.0), "effect": jnp.asarray(0.0)}).items()
    } == {"variance": 9.0}


def test_reparametrised_sites_come_back_as_derived():
    def model(y):
        centre = numpyro.sample("centre", dist.Normal(0, 1))
        with numpyro.plate("groups", 3):
            effect = numpyro.sample("effect", dist.Normal(centre, 2.0))
        numpyro.sample("y", dist.Normal(effect.sum(), 1.0).expand([y.shape[0]]), obs=y)

    noncentred = vcmc.from_numpyro(
        reparam(model, {"effect": LocScaleReparam(0.0)}), {"y": ROWS["y"]}
    )
    assert list(noncentred.space) == ["centre", "effect_decentered"]
    params = {"centre": jnp.asarray(1.0), "effect_decentered": jnp.array([0.0, 1.0, -1.0])}
    np.testing.assert_allclose(noncentred.derived(params)["effect"], [1.0, 3.0, -1.0])


def test_constants_are_passed_on():
    def model(group, y, num_groups):
        effects = numpyro.sample("effects", dist.Normal(0, 1).expand([num_groups]).to_event(1))
        numpyro.sample("y", dist.Normal(effects[group], 1.0), obs=y)

    rows = {"group": np.arange(60) % 4, "y": ROWS["y"]}
    assert vcmc.from_numpyro(model, rows, constants={"num_groups": 4}).space.dim == 4


def test_space_can_say_more_than_the_support():
    def model(y):
        centres = numpyro.sample("centres", dist.Normal(0, 3).expand([3, 1]).to_event(2))
        mixture = dist.MixtureSameFamily(
            dist.Categorical(jnp.ones(3) / 3), dist.Normal(centres[:, 0], 1.0)
        )
        numpyro.sample("y", mixture, obs=y)

    exchangeable = vcmc.Exchangeable(3, vcmc.Real(1))
    found = vcmc.from_numpyro(model, {"y": ROWS["y"]}, space={"centres": exchangeable})
    assert found.space["centres"] is exchangeable
    with pytest.raises(ValueError, match=r"must have the site's shape \(3, 1\)"):
        vcmc.from_numpyro(model, {"y": ROWS["y"]}, space={"centres": vcmc.Real(2)})
    with pytest.raises(ValueError, match="the latent sites are"):
        vcmc.from_numpyro(model, {"y": ROWS["y"]}, space={"center": exchangeable})


def with_factor(y, per_row):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.factor("penalty", -(mean**4))
    values = -0.5 * (y - mean) ** 2
    numpyro.factor("fit", values if per_row else values.sum())


def test_factors_count_where_they_are_declared():
    model = vcmc.from_numpyro(
        with_factor,
        {"y": ROWS["y"]},
        constants={"per_row": True},
        prior_sites=["penalty"],
        likelihood_sites=["fit"],
    )
    params = {"mean": jnp.asarray(0.5)}
    np.testing.assert_allclose(model.log_prior(params), dist.Normal(0, 1).log_prob(0.5) - 0.5**4)
    np.testing.assert_allclose(
        model.log_likelihood(params, {"y": ROWS["y"]}), -0.5 * (ROWS["y"] - 0.5) ** 2, rtol=1e-12
    )


def enumerated_mixture(y):
    centres = numpyro.sample("centres", dist.Normal(0, 5).expand([3]).to_event(1))
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("rows", y.shape[0]):
        kind = numpyro.sample("kind", dist.Categorical(weights), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(centres[kind], 1.0), obs=y)


@pytest.mark.slow
def test_enumerated_sites_are_summed_out():
    model = vcmc.from_numpyro(enumerated_mixture, {"y": ROWS["y"]})
    assert list(model.space) == ["centres", "weights"]
    params, values = log_likelihood(model, {"y": ROWS["y"]})
    parts = dist.Normal(params["centres"], 1.0).log_prob(ROWS["y"][:, None]) + jnp.log(
        params["weights"]
    )
    np.testing.assert_allclose(values, jax.nn.logsumexp(parts, axis=1), rtol=1e-10)


def shared_enumerated(y):
    kind = numpyro.sample("kind", dist.Bernoulli(0.5), infer={"enumerate": "parallel"})
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(mean + kind, 1.0), obs=y)


def latent_per_row(y):
    effect = numpyro.sample("effect", dist.Normal(0, 1).expand([y.shape[0]]).to_event(1))
    numpyro.sample("y", dist.Normal(effect, 1.0), obs=y)


def discrete_latent(y):
    kind = numpyro.sample("kind", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(kind * 1.0, 1.0), obs=y)


def observes_a_constant(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.sample("pilot", dist.Normal(mean, 1.0), obs=0.3)
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def joint_over_rows(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    size = y.shape[0]
    numpyro.sample("y", dist.MultivariateNormal(mean * jnp.ones(size), jnp.eye(size) + 0.5), obs=y)


def hard_coded_size(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("rows", 60):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def data_dependent_prior(y):
    mean = numpyro.sample("mean", dist.Normal(0, 10 / y.std()))
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def prior_that_is_flat_at_zero(x, y):
    beta = numpyro.sample("beta", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.factor("g", -0.5 * jnp.sum((x @ beta) ** 2))
    numpyro.sample("y", dist.Normal(x @ beta, 1.0), obs=y)


def test_a_prior_that_looks_at_rows_away_from_zero_is_refused():
    with pytest.raises(ValueError, match="the prior depends on the rows"):
        vcmc.from_numpyro(prior_that_is_flat_at_zero, ROWS, prior_sites=["g"])


@pytest.mark.parametrize("num_rows", [2, 5, 50])
def test_a_data_dependent_prior_is_refused_however_few_the_rows(num_rows):
    with pytest.raises(ValueError, match="the prior depends on the rows"):
        vcmc.from_numpyro(data_dependent_prior, {"y": ROWS["y"][:num_rows]})


def subsampling_plate(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("rows", y.shape[0], subsample_size=3) as index:
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y[index])


def with_param(y):
    mean = numpyro.param("mean", 0.0)
    spread = numpyro.sample("spread", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(mean, spread), obs=y)


def python_number_from_rows(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1).expand([int(y.max()) + 1]).to_event(1))
    numpyro.sample("y", dist.Normal(mean[0], 1.0), obs=y)


def imputes(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=y, obs_mask=y > 0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (latent_per_row, r"'effect' has one value per row .* integrate it out"),
        (imputes, "has one value per row"),
        (shared_enumerated, "'kind' is shared by all rows"),
        (discrete_latent, "'kind' is discrete.* sum it out"),
        (
            observes_a_constant,
            "'pilot' does not depend on the rows.*every shard would count it again",
        ),
        (joint_over_rows, "joint distribution over all rows"),
        (
            hard_coded_size,
            r"fails on 5: .* plate 'rows' has 60 elements, however many rows there are: take its "
            r'size from the rows, e.g. numpyro.plate\("rows", y.shape\[0\]\)',
        ),
        (data_dependent_prior, "the prior depends on the rows"),
        (subsampling_plate, "leave out subsample_size"),
        (with_param, "give it a prior"),
        (python_number_from_rows, "compute it beforehand and pass it in constants"),
        (lambda y: numpyro.sample("m", dist.Normal(0, 1)), "must observe its rows"),
        (lambda y: numpyro.sample("y", dist.Normal(0, 1), obs=y), "must have a latent site"),
        (lambda z: None, r"so \['y'\] are not arguments, so \['z'\] are missing"),
    ],
)
def test_what_cannot_be_sharded_is_refused_with_a_reason(model, message):
    with pytest.raises(ValueError, match=message):
        vcmc.from_numpyro(model, {"y": ROWS["y"]})


@pytest.mark.parametrize(
    ("declared", "per_row", "message"),
    [
        ({}, True, "declare it with from_numpyro"),
        ({"prior_sites": ["penalty"]}, True, "numpyro.factor\\('fit'\\) may belong"),
        (
            {"prior_sites": ["penalty"], "likelihood_sites": ["fit"]},
            False,
            "must have one value per row",
        ),
        ({"prior_sites": ["penalties"]}, True, "declared but not in the model"),
    ],
)
def test_undeclared_factors_are_refused(declared, per_row, message):
    with pytest.raises(ValueError, match=message):
        vcmc.from_numpyro(with_factor, {"y": ROWS["y"]}, constants={"per_row": per_row}, **declared)


@pytest.fixture
def validation():
    """Check the arguments of distributions, as NumPyro's users do to find errors."""
    with numpyro.validation_enabled():
        yield


@pytest.mark.usefixtures("validation")
@pytest.mark.parametrize(
    "prior", [dist.InverseGamma(0.001, 0.001), dist.Gamma(0.001, 0.001)], ids=["inverse", "gamma"]
)
def test_vague_priors_whose_draws_overflow_are_taken(prior):
    def model(y):
        precisions = numpyro.sample("precisions", prior.expand([20]).to_event(1))
        scales = 1 / jnp.sqrt(precisions)  # of a draw: zero or infinite
        numpyro.sample("effects", dist.Normal(0, scales).to_event(1))
        bounds = numpyro.sample("bounds", dist.Uniform(-scales, 1.0).to_event(1))
        covariance = jnp.diag(precisions)
        numpyro.sample("more", dist.MultivariateNormal(jnp.zeros(20), covariance))
        numpyro.sample("y", dist.Normal(bounds.sum(), 1.0), obs=y)

    found = vcmc.from_numpyro(model, {"y": ROWS["y"]})
    assert found.space.dim == 80
    point = 0.1 * jax.random.normal(jax.random.key(0), (80,))
    assert np.isfinite(found.log_prior_at(point))


def test_improper_uniform_is_a_flat_prior_on_its_support():
    def model(y):
        mean = numpyro.sample("mean", dist.ImproperUniform(dist.constraints.real, (), ()))
        with numpyro.plate("two", 2):
            scales = numpyro.sample(
                "scales", dist.ImproperUniform(dist.constraints.positive, (), ())
            )
        cut = numpyro.sample(
            "cut", dist.ImproperUniform(dist.constraints.greater_than(mean), (), event_shape=(3,))
        )
        numpyro.sample("y", dist.Normal(mean + cut.sum(), scales.sum()), obs=y)

    found = vcmc.from_numpyro(model, {"y": ROWS["y"]})
    params, log_det = found.space.constrain_with_log_det(jnp.linspace(-1, 1, 6))
    assert (params["scales"] > 0).all()
    assert (params["cut"] > params["mean"]).all()
    assert float(found.log_prior(params)) == 0.0
    assert float(found.log_prior_at(jnp.linspace(-1, 1, 6))) == float(log_det)


def test_a_flat_prior_gives_the_posterior_of_a_masked_one():
    def model(y, prior):
        mean = numpyro.sample("mean", prior)
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    priors = dist.ImproperUniform(dist.constraints.real, (), ()), dist.Normal(0, 1).mask(False)
    results = [
        vcmc.infer(
            vcmc.from_numpyro(model, {"y": ROWS["y"]}, constants={"prior": prior}),
            {"y": ROWS["y"]},
            num_shards=3,
            shard_draws=100,
        )
        for prior in priors
    ]
    first, second = (vcmc.posterior_draws(tree)["mean"] for tree in results)
    np.testing.assert_array_equal(first, second)


def test_a_number_of_rows_in_constants_is_refused_with_a_way_out():
    def model(y, N):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("n", N):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    with pytest.raises(ValueError, match="any number of rows") as raised:
        vcmc.from_numpyro(model, {"y": ROWS["y"]}, constants={"N": 60})
    message = str(raised.value)
    assert "plate 'n' has 60 elements" in message
    assert 'numpyro.plate("n", y.shape[0])' in message
    assert "constants['N'] = 60 is the number of rows" in message
    assert "Pass it in constants" not in message


def scoped(x, y=None):
    with scope(prefix="net"):
        with numpyro.plate("features", 2):
            b = numpyro.sample("b", dist.Normal(0, 1))
        with scope(prefix="deep"):
            scale = numpyro.sample("scale", dist.LogNormal(0, 1))
        numpyro.deterministic("double", 2 * b)
        numpyro.factor("f", -0.5 * scale)
        numpyro.sample("y", dist.Normal(x @ b, scale), obs=y)


def test_slashes_of_scopes_become_points():
    rows = {"x": np.random.default_rng(0).normal(size=(30, 2)), "y": np.arange(30.0)}
    model = vcmc.from_numpyro(scoped, rows, space={"net/b": vcmc.Real(2)}, prior_sites=["net/f"])
    assert list(model.space) == ["net.b", "net.deep.scale"]
    params = {"net.b": np.array([0.1, 0.2]), "net.deep.scale": 1.5}
    expected = (
        dist.Normal(0, 1).log_prob(params["net.b"]).sum()
        + dist.LogNormal(0, 1).log_prob(1.5)
        - 0.75
    )
    np.testing.assert_allclose(model.log_prior(params), expected, rtol=1e-12)
    np.testing.assert_allclose(
        model.log_likelihood(params, rows),
        dist.Normal(rows["x"] @ params["net.b"], 1.5).log_prob(rows["y"]),
        rtol=1e-12,
    )
    np.testing.assert_allclose(model.derived(params)["net.double"], [0.2, 0.4])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")  # 100 draws are few
def test_draws_of_scoped_sites_return_under_their_own_names(tmp_path):
    """`Predictive` would draw a site that it does not find from its prior."""
    generator = np.random.default_rng(0)
    rows = {"x": generator.normal(size=(200, 2)), "y": generator.normal(size=200) + 40}
    model = vcmc.from_numpyro(scoped, rows, prior_sites=["net/f"])
    tree = vcmc.infer(model, rows, num_shards=2, shard_draws=100, store=tmp_path / "run")
    assert {*tree["posterior"].data_vars} == {"net.b", "net.deep.scale", "net.double"}
    again = vcmc.combine(tree, model=model, rows=rows)
    for result in (tree, vcmc.load(tmp_path / "run"), again):
        draws = vcmc.posterior_draws(result)
        assert {*draws} == {"net/b", "net/deep/scale", "net/double"}
        assert draws["net/deep/scale"].min() > 20
    predict = numpyro.infer.Predictive(scoped, posterior_samples=draws)
    np.testing.assert_array_equal(
        predict(jax.random.key(0), x=rows["x"])["net/double"], draws["net/double"]
    )


@pytest.mark.parametrize("name", ["chain", "draw", "shard"])
def test_sites_called_like_axes_of_results_are_refused(name):
    def model(y):
        mean = numpyro.sample(name, dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    with pytest.raises(ValueError, match=f"must not be called '{name}'"):
        vcmc.from_numpyro(model, {"y": np.arange(10.0)})


@pytest.mark.parametrize("given", ["i1", ">f8", ">i4", "u1", "f2"])
def test_rows_of_any_number_type_are_taken(given):
    def model(x, y):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(mean * (2 * x - 1), 1), obs=y)

    rows = {"x": np.full(20, 100, given), "y": np.zeros(20, given)}
    value = vcmc.from_numpyro(model, rows)
    shard = vcmc.split(rows, 1).load(0)
    np.testing.assert_allclose(
        value.log_likelihood({"mean": 1.0}, shard.rows),
        dist.Normal(199, 1).log_prob(np.zeros(20)),
    )


def test_models_of_different_rows_have_the_same_programs():
    def regression(x, sd, y):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        numpyro.deterministic("double", 2 * slope)
        numpyro.sample("y", dist.Normal(slope * x, sd), obs=y)

    programs = []
    for seed in range(2):
        values = np.random.default_rng(seed).uniform(1, 2, size=(3, 20))
        model = vcmc.from_numpyro(regression, dict(zip(("x", "sd", "y"), values, strict=True)))
        params = {"slope": jnp.zeros(())}
        derived = model.derived
        assert derived is not None
        programs.append(
            str(jax.make_jaxpr(model.log_prior)(params).consts)
            + str(jax.make_jaxpr(lambda p, derived=derived: derived(p))(params).consts)
        )
    assert programs[0] == programs[1]
