"""Predictions by group: closed forms for known and new groups, and what is refused."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.stats as stats
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import Predictive

import vcmc
from vcmc.executors import Processes
from vcmc.inference import prediction
from vcmc.inference.prediction_groups import find_labels
from vcmc.results.tree import make_tree

NUM_GROUPS, NUM_DRAWS = 6, 4000
TAU, SIGMA, SLOPE = 0.8, 0.5, 2.0
LABELS = np.array([f"g{number}" for number in range(NUM_GROUPS)])
MAX_ERRORS = 4.5  # standard errors; of some tens of comparisons, none exceeds it


def normal(group, x, y=None, *, num_groups):
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    with numpyro.plate("groups", num_groups):
        alpha = numpyro.sample("alpha", dist.Normal(mu, TAU))
    numpyro.sample("y", dist.Normal(alpha[group] + SLOPE * x, SIGMA), obs=y)


def plain(**extra):
    return vcmc.Model(
        space={"mu": vcmc.Real()},
        local_space={"alpha": vcmc.Real()},
        log_prior=lambda params: stats.norm.logpdf(params["mu"], 0, 10),
        log_local_prior=lambda params, local, _: stats.norm.logpdf(
            local["alpha"], params["mu"], TAU
        ),
        log_likelihood=lambda _, local, rows: stats.norm.logpdf(
            rows["y"], local["alpha"] + SLOPE * rows["x"], SIGMA
        ),
        groups="group",
        **extra,
    )


def simulate(key, params, local, rows):
    del params
    noise = SIGMA * jax.random.normal(key, rows["x"].shape)
    return {"y": local["alpha"] + SLOPE * rows["x"] + noise}


def simulate_local(key, params, group):
    shape = group["x"].shape
    return {"alpha": params["mu"] + TAU * jax.random.normal(key, shape)}


class Exact(NamedTuple):
    """Rows, and the exact posterior of (mu, alpha): draws, means and covariance."""

    rows: dict
    tree: object
    mean: np.ndarray
    covariance: np.ndarray


@pytest.fixture(scope="module")
def exact():
    generator = np.random.default_rng(0)
    group = np.repeat(np.arange(NUM_GROUPS), [1, 2, 3, 4, 5, 6])
    x = generator.normal(size=len(group))
    y = 1 + TAU * generator.normal(size=NUM_GROUPS)[group] + SLOPE * x
    y += SIGMA * generator.normal(size=len(group))
    # precision of (mu, alpha): priors of mu and of alpha given mu, and the rows
    precision = np.zeros((1 + NUM_GROUPS, 1 + NUM_GROUPS))
    precision[0, 0] = 1 / 100 + NUM_GROUPS / TAU**2
    precision[0, 1:] = precision[1:, 0] = -1 / TAU**2
    counts = np.bincount(group)
    precision[1:, 1:] = np.diag(1 / TAU**2 + counts / SIGMA**2)
    linear = np.append(0.0, np.bincount(group, (y - SLOPE * x) / SIGMA**2))
    covariance = np.linalg.inv(precision)
    mean = covariance @ linear
    draws = generator.multivariate_normal(mean, covariance, size=(1, NUM_DRAWS))
    groups = {
        "posterior": {"mu": draws[..., 0], "alpha": draws[..., 1:]},
        "dims": {"alpha": np.array(["group"])},
        "coords": {"group": LABELS},
    }
    rows = {"group": LABELS[group], "x": x, "y": y}
    return Exact(rows, make_tree(groups, {"num_shards": 1}), mean, covariance)


def models(exact):
    return {
        "numpyro": vcmc.from_numpyro(normal, exact.rows, groups="group", num_groups="num_groups"),
        "plain": plain(simulate=simulate, simulate_local=simulate_local),
    }


NEW = {"group": np.array(["g5", "new", "g0", "new", "other"]), "x": np.array([0, 0.5, -1, 2, 0])}


def assert_closed_form(exact, values):
    """Compare draws (draw, row) of `NEW` with normal distributions."""
    sd_new = np.sqrt(exact.covariance[0, 0] + TAU**2 + SIGMA**2)
    centres = np.array([exact.mean[6], exact.mean[0], exact.mean[1], exact.mean[0], exact.mean[0]])
    variances = np.array([exact.covariance[6, 6], 0, exact.covariance[1, 1], 0, 0]) + SIGMA**2
    sds = np.where(np.isin(NEW["group"], LABELS), np.sqrt(variances), sd_new)
    error = sds / np.sqrt(len(values))
    difference = values.mean(axis=0) - centres - SLOPE * NEW["x"]
    np.testing.assert_array_less(np.abs(difference), MAX_ERRORS * error)
    np.testing.assert_array_less(np.abs(values.std(axis=0) - sds), MAX_ERRORS * error / np.sqrt(2))
    # rows of one new group share its local parameter, and all share mu
    correlations = np.corrcoef(values.T)
    shared = exact.covariance[0, 0]
    bound = MAX_ERRORS / np.sqrt(len(values))
    assert abs(correlations[1, 3] - (shared + TAU**2) / sd_new**2) < bound
    assert abs(correlations[1, 4] - shared / sd_new**2) < bound


@pytest.mark.parametrize("kind", ["numpyro", "plain"])
@pytest.mark.parametrize("max_rows", [2, 1000])
def test_known_and_new_groups_have_their_closed_forms(exact, kind, max_rows, monkeypatch):
    """Blocks of two rows separate the two rows of a new group, which stay those of one group."""
    monkeypatch.setattr(prediction, "MAX_BLOCK_BYTES", 2 * 8 * NUM_DRAWS * max_rows)
    model = models(exact)[kind]
    result = vcmc.predict(exact.tree, model, NEW, "y", draws=True, progress=False)["y"]
    assert_closed_form(exact, result.to_numpy()[0])


def test_local_sites_of_vectors_and_tables_of_groups(exact):
    """Covariates of groups come from the table; groups that it lacks cannot be predicted."""
    table = {"group": LABELS, "size": np.arange(float(NUM_GROUPS))}

    def with_table(group, x, y=None, *, size, num_groups):
        mu = numpyro.sample("mu", dist.Normal(0, 10))
        with numpyro.plate("groups", num_groups):
            alpha = numpyro.sample("alpha", dist.Normal(mu + size, TAU))
        numpyro.sample("y", dist.Normal(alpha[group] + 0 * x, 1e-6), obs=y)

    model = vcmc.from_numpyro(
        with_table, exact.rows, groups="group", num_groups="num_groups", group_rows=table
    )
    known = {"group": LABELS[[4, 1]], "x": np.zeros(2)}
    result = vcmc.predict(exact.tree, model, known, draws=True, progress=False)["y"]
    alpha = exact.tree["posterior"]["alpha"].to_numpy()[..., [4, 1]]
    np.testing.assert_allclose(result, alpha, atol=1e-4)
    with pytest.raises(ValueError, match=r"table does not have, e.g. 'new'.*needs their 'size'"):
        vcmc.predict(exact.tree, model, NEW, progress=False)


def test_known_groups_are_predicted_as_by_predictive(exact):
    model = models(exact)["numpyro"]
    rows = {"group": exact.rows["group"], "x": exact.rows["x"]}
    result = vcmc.predict(exact.tree, model, rows, progress=False)
    posterior = {name: vcmc.posterior_draws(exact.tree)[name] for name in ("mu", "alpha")}
    codes = np.searchsorted(LABELS, rows["group"])
    expected = Predictive(normal, posterior)(
        jax.random.key(1), jnp.asarray(codes), jnp.asarray(rows["x"]), num_groups=NUM_GROUPS
    )["y"]
    expected = np.asarray(expected)
    sd = np.sqrt(np.diag(exact.covariance)[1 + codes] + SIGMA**2)
    error = sd * np.sqrt(2 / NUM_DRAWS)  # of a difference of two means
    difference = result["mean"] - expected.mean(axis=0)
    np.testing.assert_array_less(np.abs(difference), MAX_ERRORS * error)
    difference = result["sd"] - expected.std(axis=0, ddof=1)
    np.testing.assert_array_less(np.abs(difference), MAX_ERRORS * error / np.sqrt(2))


def test_labels_in_files_give_the_same_predictions(exact, tmp_path, monkeypatch):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(prediction, "MAX_BLOCK_BYTES", 2 * 8 * 100 * 2)  # two rows
    model = models(exact)["numpyro"]
    expected = vcmc.predict(exact.tree, model, NEW, num_draws=100, progress=False)
    pq.write_table(pa.table(NEW), tmp_path / "new.parquet", row_group_size=3)
    out = vcmc.predict(
        exact.tree,
        model,
        tmp_path / "new.parquet",
        out=tmp_path / "out.parquet",
        num_draws=100,
        progress=False,
    )
    table = pq.read_table(out)
    for name in expected:
        np.testing.assert_array_equal(table[name].to_numpy(), expected[name])


@pytest.mark.slow
def test_executors_agree(exact):
    model = models(exact)["numpyro"]
    expected = vcmc.predict(exact.tree, model, NEW, num_draws=100, progress=False)
    with Processes(2) as executor:
        result = vcmc.predict(
            exact.tree, model, NEW, num_draws=100, executor=executor, progress=False
        )
    for name in expected:
        np.testing.assert_allclose(result[name], expected[name], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_local_draws_in_files_give_the_same_predictions(exact, tmp_path):
    pytest.importorskip("pyarrow")
    model = models(exact)["numpyro"]
    store = tmp_path / "run"
    tree = vcmc.infer(
        model, exact.rows, num_shards=2, num_draws=200, store=store, locals="file", progress=False
    )
    result = vcmc.predict(tree, model, NEW, num_draws=50, progress=False)
    alpha = vcmc.load_locals(store)["alpha"]
    groups = {
        "posterior": {"mu": tree["posterior"]["mu"].to_numpy(), "alpha": alpha.to_numpy()},
        "dims": {"alpha": np.array(["group"])},
        "coords": {"group": alpha["group"].to_numpy()},
    }
    in_memory = make_tree(groups, {"num_shards": 2})
    expected = vcmc.predict(in_memory, model, NEW, num_draws=50, progress=False)
    for name in expected:
        np.testing.assert_array_equal(result[name], expected[name])


def test_trees_without_local_draws_are_refused(exact):
    tree = make_tree({"posterior": {"mu": np.zeros((1, 10))}}, {"num_shards": 1})
    with pytest.raises(ValueError, match=r'locals="none" or "summary". Call infer again with'):
        vcmc.predict(tree, plain(simulate=simulate), NEW, progress=False)


def test_trees_of_other_models_are_refused(exact):
    posterior = exact.tree["posterior"]
    arrays = {"mu": posterior["mu"].to_numpy(), "alpha": posterior["alpha"].to_numpy()}
    tree = make_tree({"posterior": arrays}, {"num_shards": 1})  # an axis of another name
    with pytest.raises(ValueError, match="the tree is a result of another model"):
        vcmc.predict(tree, plain(simulate=simulate), NEW, progress=False)


def test_new_groups_of_a_model_that_cannot_draw_them_are_refused(exact):
    model = plain(simulate=simulate)
    known = {name: array[[0, 2]] for name, array in NEW.items()}
    assert vcmc.predict(exact.tree, model, known, progress=False).sizes["row"] == 2
    with pytest.raises(ValueError, match=r"no draws of, e.g. 'new', 'other'.*simulate_local="):
        vcmc.predict(exact.tree, model, NEW, progress=False)


def test_labels_must_be_there_and_of_one_kind(exact):
    model = models(exact)["numpyro"]
    with pytest.raises(ValueError, match=r"rows must have the column 'group'.*got \['x'\]"):
        vcmc.predict(exact.tree, model, {"x": NEW["x"]}, progress=False)
    with pytest.raises(ValueError, match=r"labels of the kind .* 'g0', 'g1', 'g2'; got 0, 1"):
        vcmc.predict(exact.tree, model, {**NEW, "group": np.arange(5)}, progress=False)
    missing = {**NEW, "group": np.array(["g1", None, "g2", "g3", "g4"], object)}
    with pytest.raises(ValueError, match="must give a group to every row; 1 labels are missing"):
        vcmc.predict(exact.tree, model, missing, progress=False)


def test_labels_are_found_whatever_their_order():
    known = np.array([30, 10, 20])
    assert find_labels(known, np.array([10, 15, 30, 40]), "g").tolist() == [1, -1, 0, -1]
    assert jnp.asarray(find_labels(known, np.array([20.0]), "g")).tolist() == [2]
