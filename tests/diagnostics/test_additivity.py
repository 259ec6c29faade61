import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vcmc
from vcmc.errors import ModelError

ROWS = {"x": np.random.default_rng(0).normal(1.0, 2.0, size=(300, 2))}
SAMPLER = vcmc.samplers.NUTS(num_warmup=100)


def infer(
    log_likelihood,
    rows=ROWS,
    log_prior=lambda params: -0.5 * jnp.sum(params["beta"] ** 2),
    **arguments,
):
    model = vcmc.Model({"beta": vcmc.Real(2)}, log_prior, log_likelihood)
    arguments = {"num_shards": 3, "shard_draws": 20, "sampler": SAMPLER} | arguments
    return vcmc.infer(model, rows, **arguments)


def residual(params, x):
    return -0.5 * jnp.sum((x - params["beta"]) ** 2, axis=1)


@pytest.mark.parametrize(
    "log_likelihood",
    [
        lambda params, rows: residual(params, (rows["x"] - rows["x"].mean(0)) / rows["x"].std(0)),
        lambda params, rows: residual(params, rows["x"]) / rows["x"].shape[0],
        lambda params, rows: residual(params, rows["x"] / jnp.abs(rows["x"]).max()),
        lambda params, rows: residual(params, jnp.argsort(rows["x"], axis=0) / 300.0),
    ],
    ids=["standardises", "divides by the number", "scales by the maximum", "ranks"],
)
@pytest.mark.parametrize("num_shards", [1, 3])
def test_models_that_look_at_all_rows_are_refused(log_likelihood, num_shards):
    with pytest.raises(ModelError, match=r"must add up .* statistic of all its rows"):
        infer(log_likelihood, num_shards=num_shards)


def test_hard_coded_sizes_are_refused():
    with pytest.raises(ModelError, match="a size is hard-coded in it"):
        infer(lambda params, rows: residual(params, rows["x"]) + jnp.zeros(300))


@pytest.mark.parametrize(
    ("log_likelihood", "shape"),
    [
        (lambda params, rows: jnp.sum(residual(params, rows["x"])), r"\(\)"),
        (lambda params, rows: -0.5 * (rows["x"] - params["beta"]) ** 2, r"\(100, 2\)"),
    ],
)
def test_one_value_per_row_is_asked_for(log_likelihood, shape):
    with pytest.raises(ModelError, match=rf"one value per row, shape \(100,\); got shape {shape}"):
        infer(log_likelihood)


def test_a_log_prior_must_be_a_single_number():
    with pytest.raises(
        ModelError, match=r"log_prior must return a single number; got shape \(2,\)"
    ):
        infer(
            lambda params, rows: residual(params, rows["x"]),
            log_prior=lambda params: -(params["beta"] ** 2),
        )


def test_a_misspelt_row_name_is_named():
    with pytest.raises(ModelError, match=r"asks for 'z'; the rows are \['x'\]"):
        infer(lambda params, rows: rows["z"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")  # 20 draws
def test_single_precision_is_no_offence():
    """Rounding differs between shapes: that is not a statistic of all rows."""
    x = np.random.default_rng(0).normal(size=(350, 40)).astype(np.float32)
    model = vcmc.Model(
        {"beta": vcmc.Real(40)},
        lambda params: -0.5 * jnp.sum(params["beta"] ** 2),
        lambda params, rows: -0.5 * (rows["x"] @ params["beta"].astype(jnp.float32)) ** 2,
    )
    vcmc.infer(model, {"x": x}, num_shards=7, shard_draws=20, sampler=SAMPLER)


def mixture(space):
    """Two centres and their shares: relabelling centres alone changes the density, relabelling both
    does not."""
    return vcmc.Model(
        space,
        log_prior=lambda params: (
            -0.5 * jnp.sum(params["centres"] ** 2) + jnp.sum(jnp.log(params["shares"]))
        ),
        log_likelihood=lambda params, rows: jax.nn.logsumexp(
            jnp.log(params["shares"]) - 0.5 * (rows["x"][:, None] - params["centres"]) ** 2, axis=1
        ),
    )


def test_components_that_are_not_exchangeable_are_refused():
    rows = {"x": np.random.default_rng(0).normal(size=50)}
    space = {"centres": vcmc.Exchangeable(2, vcmc.Real()), "shares": vcmc.Simplex(2)}
    with pytest.raises(
        vcmc.ModelError,
        match=r"\['centres'\] are declared to have 2 exchangeable.*one of \['shares'\]",
    ):
        vcmc.infer(mixture(space), rows, num_shards=2)


@pytest.mark.slow
def test_components_that_share_their_labels_are_fine():
    rows = {
        "x": np.concatenate([np.random.default_rng(0).normal(size=100) + 3 * s for s in (-1, 1)])
    }
    space = {
        "centres": vcmc.Exchangeable(2, vcmc.Real()),
        "shares": vcmc.Simplex(2, exchangeable=True),
    }
    vcmc.infer(mixture(space), rows, num_shards=2, shard_draws=300)


def test_a_prior_that_tells_components_apart_is_refused_however_many_the_rows():
    """The prior of a shard is tempered, and small beside the likelihood of its rows."""
    rows = {"x": np.random.default_rng(0).normal(size=20_000)}
    model = vcmc.Model(
        {"centres": vcmc.Exchangeable(3, vcmc.Real())},
        log_prior=lambda params: (
            -0.5 * jnp.sum((params["centres"] - jnp.array([-1.0, 0.0, 1.0])) ** 2)
        ),
        log_likelihood=lambda params, rows: jax.nn.logsumexp(
            -0.5 * (rows["x"][:, None] - params["centres"]) ** 2, axis=1
        ),
    )
    with pytest.raises(vcmc.ModelError, match="the log prior changes when they are relabelled"):
        vcmc.infer(model, rows, num_shards=100)
