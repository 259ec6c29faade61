"""Shards without information on a coordinate, and facts about shards."""

import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.diagnostics.information import check_information, shard_facts
from vcmc.errors import ModelError
from vcmc.target import Target


def half_silent(params, rows):
    """Return a log likelihood in which rows with z = 0 are silent on the second coefficient."""
    return -0.5 * (rows["y"] - params["beta"][0] - rows["z"] * params["beta"][1]) ** 2


RARE = {"y": np.random.default_rng(1).normal(size=300), "z": np.arange(300) == 7}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Shard")
def test_a_shard_without_information_is_reported():
    with pytest.warns(
        vcmc.DoubtfulWarning, match=r"2 of 3 shards hold no information on beta\[1\]"
    ):
        tree = infer()
    assert any("hold no information on beta[1]" in note for note in tree.attrs["warnings"])


def test_a_shard_without_information_under_a_flat_prior_is_refused():
    with pytest.raises(ModelError, match=r"2 of 3 shards hold no information .* stratify"):
        infer(log_prior=lambda params: jnp.zeros(()))


def normal_prior(params):
    return -0.5 * jnp.sum(params["beta"] ** 2)


def infer(log_prior=normal_prior):
    model = vcmc.Model({"beta": vcmc.Real(2)}, log_prior, half_silent)
    sampler = vcmc.samplers.NUTS(num_warmup=100)
    return vcmc.infer(model, RARE, num_shards=3, shard_draws=20, sampler=sampler)


def target(shards):
    model = vcmc.Model({"beta": vcmc.Real(2)}, normal_prior, half_silent)
    return Target(model, shards, vcmc.executors.Local())


def test_facts_of_shards_are_those_of_their_rows():
    partition = vcmc.split(RARE, 3)
    informed = [bool(RARE["z"][members].any()) for members in partition.members]
    facts = shard_facts(target([partition.load(shard) for shard in range(3)]), jnp.ones((2, 2)))
    assert [shard.num_rows for shard in facts] == [100, 100, 100]
    assert [shard.silent.tolist() for shard in facts] == [[False, not z] for z in informed]


def test_shards_must_have_rows_of_one_kind():
    kinds = [RARE, RARE | {"z": RARE["z"].astype(float)}]
    shards = [vcmc.split(rows, 1).load(0) for rows in kinds]
    with pytest.raises(ValueError, match=r"same dtypes and shapes; shard 0 has .*bool.*shard 1"):
        shard_facts(target(shards), jnp.ones((1, 2)))


# Directions, of which coordinates are the simplest


def flat_prior(params):
    return jnp.zeros(())


def regression_rows(num_rows, num_columns, scale=1.0, seed=0):
    """Return rows with dummies, of which small shards have constant columns, never zero ones."""
    generator = np.random.default_rng(seed)
    x = 2.0 * (generator.random((num_rows, num_columns)) < 0.15) - 1
    x *= scale ** np.linspace(-1, 1, num_columns)
    return {"x": x, "y": generator.normal(size=num_rows)}


def normal_regression(num_columns, log_prior=flat_prior):
    return vcmc.Model(
        {"beta": vcmc.Real(num_columns)},
        log_prior,
        lambda params, rows: -0.5 * (rows["y"] - rows["x"] @ params["beta"]) ** 2,
    )


def check(model, rows, num_shards, points=None):
    """Return the warnings of a check of information at random points."""
    checked = Target(model, vcmc.split(rows, num_shards), vcmc.executors.Local())
    if points is None:
        points = np.random.default_rng(3).normal(size=(3, model.space.dim))
    found = check_information(checked, jnp.asarray(points), shard_facts(checked, points))
    return found.notes + found.remarks


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_collinear_columns_under_a_flat_prior_are_refused(scale):
    rows = regression_rows(300, 12, scale)
    with pytest.raises(ModelError, match="of 20 shards do not determine some direction") as raised:
        vcmc.infer(normal_regression(12), rows, num_shards=20)
    assert "fewer shards" in str(raised.value)
    assert "proper prior" in str(raised.value)
    assert check(normal_regression(12), rows, 2) == []


def test_the_direction_is_named_by_its_main_coordinates():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 5))
    x[:, 4] = x[:, 1]
    rows = {"x": x, "y": generator.normal(size=60)}
    with pytest.raises(ModelError, match=r"shard 0: 1 beta\[1\] - 1 beta\[4\]"):
        check(normal_regression(5), rows, 3)


def test_fewer_rows_than_parameters_under_a_flat_prior_are_refused():
    generator = np.random.default_rng(0)
    rows = {"x": generator.normal(size=(40, 8)), "y": generator.normal(size=40)}
    with pytest.raises(ModelError, match="10 of 10 shards do not determine some direction"):
        check(normal_regression(8), rows, 10)


@pytest.mark.parametrize("bernoulli", [True, False])
def test_a_logistic_or_poisson_regression_is_checked_in_all_directions(bernoulli):
    def log_likelihood(params, rows):
        eta = rows["x"] @ params["beta"]
        return rows["z"] * eta - (jnp.logaddexp(0.0, eta) if bernoulli else jnp.exp(eta))

    rows = regression_rows(300, 12)
    rows["z"] = np.random.default_rng(1).integers(0, 2, 300)
    model = vcmc.Model({"beta": vcmc.Real(12)}, flat_prior, log_likelihood)
    with pytest.raises(ModelError, match="do not determine some direction"):
        check(model, rows, 20)
    assert check(model, rows, 2) == []


def flat_scale_of_no_rows(params, rows):
    return -0.5 * (rows["y"] - params["mean"]) ** 2 / (1 + rows["z"] * params["scale"]) ** 2


def test_an_improper_prior_of_a_positive_parameter_is_flat_too():
    space = {"mean": vcmc.Real(), "scale": vcmc.Positive()}
    model = vcmc.Model(space, flat_prior, flat_scale_of_no_rows)
    with pytest.raises(ModelError, match=r"2 of 3 shards hold no information .*scale"):
        check(model, RARE, 3)


PROPER_PRIORS = {
    "wide": lambda params: -0.5 * jnp.sum((params["beta"] / 1e6) ** 2),
    "laplace": lambda params: -jnp.sum(jnp.abs(params["beta"])),
    "cauchy": lambda params: -jnp.sum(jnp.log1p((params["beta"] / 1e3) ** 2)),
    "quartic": lambda params: -jnp.sum(params["beta"] ** 4),  # no curvature at zero
    "differences": lambda params: -0.5 * jnp.sum(jnp.diff(params["beta"], prepend=0.0) ** 2),
}


@pytest.mark.parametrize("name", PROPER_PRIORS)
def test_collinear_columns_under_a_proper_prior_are_sound(name):
    model = normal_regression(12, PROPER_PRIORS[name])
    rows = regression_rows(300, 12)
    assert check(model, rows, 20) == []
    assert check(model, rows, 20, points=np.zeros((1, 12))) == []


def test_rows_may_determine_what_a_random_walk_prior_leaves_flat():
    def log_prior(params):  # flat along a common shift
        return -0.5 * jnp.sum(jnp.diff(params["beta"]) ** 2)

    rows = {"y": np.random.default_rng(0).normal(size=60)}

    def log_likelihood(params, rows):
        return -0.5 * (rows["y"] - params["beta"][0]) ** 2

    model = vcmc.Model({"beta": vcmc.Real(5)}, log_prior, log_likelihood)
    assert check(model, rows, 4) == []

    def of_differences(params, rows):
        return -0.5 * (rows["y"] - params["beta"][0] + params["beta"][1]) ** 2

    model = vcmc.Model({"beta": vcmc.Real(5)}, log_prior, of_differences)
    with pytest.raises(ModelError, match=r"4 of 4 shards do not determine some direction"):
        check(model, rows, 4)


def test_a_mixture_under_flat_priors_is_sound():
    def log_likelihood(params, rows):
        parts = -0.5 * (rows["y"][:, None] - params["centres"]) ** 2
        return jnp.log(jnp.mean(jnp.exp(parts), axis=1))

    model = vcmc.Model({"centres": vcmc.Real(2)}, flat_prior, log_likelihood)
    assert check(model, RARE, 3, points=np.zeros((1, 2))) == []


def test_many_coordinates_without_information_are_one_warning():
    county = np.arange(400) // 5
    rows = {"y": np.random.default_rng(0).normal(size=400), "county": county}
    model = vcmc.Model(
        {"z": vcmc.Real(80)},
        lambda params: -0.5 * jnp.sum(params["z"] ** 2),
        lambda params, rows: -0.5 * (rows["y"] - params["z"][rows["county"]]) ** 2,
    )
    checked = Target(model, vcmc.split(rows, 10, groups=county), vcmc.executors.Local())
    points = np.random.default_rng(3).normal(size=(3, 80))
    found = check_information(checked, jnp.asarray(points), shard_facts(checked, points))
    (warning,), remarks = found
    assert not remarks
    assert warning.startswith(
        "9 of 10 shards hold no information on each of 80 coordinates (z[0], z[1], z[2], …)"
    )
    assert len(warning) < 300
