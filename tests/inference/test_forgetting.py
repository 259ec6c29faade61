"""Rows that are taken back are nowhere in the run directory, and the posterior is without them."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import vcmc
from vcmc.diagnostics.convergence import ess
from vcmc.results.states import History
from vcmc.results.store import Store
from vcmc.testing.gaussians import varying_means

MARKER = 123456.789012345  # in rows that are deleted later


@pytest.fixture
def marked(conjugate):
    """Rows with a marker in a column that the model does not use, in seven places."""
    note = np.zeros(len(conjugate.rows["y"]))
    note[::150] = MARKER
    return {**conjugate.rows, "note": note}


@pytest.fixture
def run(tmp_path, conjugate, marked):
    """A run directory with an update, in which both parts have rows to be deleted."""
    first = {name: array[:600] for name, array in marked.items()}
    second = {name: array[600:] for name, array in marked.items()}
    vcmc.infer(conjugate.model, first, num_shards=6, store=tmp_path / "run", progress=False)
    vcmc.update(tmp_path / "run", conjugate.model, second, num_shards=2, progress=False)
    return tmp_path / "run"


def holds(folder, content):
    """Return the files of a folder that hold some bytes, in whatever way they are compressed."""
    return [path for path in folder.rglob("*") if path.is_file() and content in path.read_bytes()]


def assert_posterior_is_of(tree, conjugate, indices):
    mean, covariance = conjugate.posterior(indices)
    draws = tree["posterior"]["beta"].to_numpy().reshape(-1, len(mean))
    sds = np.sqrt(np.diag(covariance))
    assert np.abs((draws.mean(axis=0) - mean) / sds).max() < 1e-3
    assert np.abs(draws.std(axis=0) / sds - 1).max() < 1e-3


@pytest.mark.filterwarnings("ignore::vcmc.StoreWarning")
def test_no_byte_of_the_rows_is_left(run, conjugate, marked):
    marker = np.float64(MARKER).tobytes()
    dropped = [path.read_bytes() for path in (run / "draws").glob("00000-0/*.npz")]
    assert len(holds(run, marker)) >= 2  # the search finds what is there
    tree = vcmc.forget(run, conjugate.model, lambda rows: rows["note"] == MARKER, progress=False)
    assert holds(run, marker) == []
    assert dropped
    assert not any(holds(run, content) for content in dropped)
    assert_posterior_is_of(tree, conjugate, marked["note"] == 0)
    assert len(vcmc.history(run)) == 1
    assert tree["updates"]["num_rows"].to_numpy().tolist() == [-7]
    assert sorted(set(tree["shard_batches"]["batch"].to_numpy().tolist())) == [0, 1]
    with pytest.raises(vcmc.StoreError, match="no state 1"):
        vcmc.restore(run, 1)
    with pytest.raises(ValueError, match="no row is to be deleted"):
        vcmc.forget(run, conjugate.model, lambda rows: rows["note"] == MARKER)


@pytest.mark.filterwarnings("ignore::vcmc.StoreWarning")
def test_a_run_goes_on_after_rows_were_deleted(run, conjugate, marked):
    vcmc.forget(run, conjugate.model, lambda rows: rows["note"] == MARKER, progress=False)
    first = {name: array[:600] for name, array in marked.items()}
    with pytest.raises(vcmc.StoreError, match="rows were deleted"):
        vcmc.infer(conjugate.model, first, num_shards=6, store=run)
    back = {name: array[marked["note"] == MARKER] for name, array in marked.items()}
    tree = vcmc.update(run, conjugate.model, back, progress=False)
    assert_posterior_is_of(tree, conjugate, slice(None))


@pytest.mark.filterwarnings("ignore::vcmc.StoreWarning")
def test_whole_shards_are_deleted_without_sampling(run, conjugate, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("nothing is to be sampled")

    tree = vcmc.load(run)
    shards = np.flatnonzero(tree["shard_batches"]["batch"].to_numpy() == 0)
    monkeypatch.setattr("vcmc.inference.update_stages.sample", refuse)
    tree = vcmc.forget(run, conjugate.model, shards, progress=False)
    assert_posterior_is_of(tree, conjugate, slice(600, None))


@pytest.mark.filterwarnings("ignore::vcmc.StoreWarning")
def test_a_single_shard_that_is_left_is_sampled_with_the_whole_prior(tmp_path):
    def log_prior(params):
        return -0.5 * 30.0 * params["mu"] ** 2

    def log_likelihood(params, rows):
        return -0.5 * (rows["y"] - params["mu"]) ** 2

    model = vcmc.Model({"mu": vcmc.Real()}, log_prior, log_likelihood)
    y = 1 + np.random.default_rng(0).normal(size=60)
    vcmc.infer(model, {"y": y}, num_shards=2, store=tmp_path / "run", progress=False)
    kept = vcmc.split({"y": y}, 2).load(1).rows["y"]
    tree = vcmc.forget(tmp_path / "run", model, [0], progress=False)
    draws = tree["posterior"]["mu"].to_numpy().ravel()
    mean, sd = float(kept.sum()) / 60, 1 / np.sqrt(60)
    effective = float(ess(draws[None, None])[0])
    assert abs(draws.mean() - mean) < 4 * sd / np.sqrt(effective)
    assert abs(draws.std() / sd - 1) < 4 / np.sqrt(2 * effective)
    assert tree.attrs["num_shards"] == 1


def test_deletion_ends_what_a_crash_left_of_it(run, conjugate, monkeypatch):
    def crash(self):
        raise KeyboardInterrupt

    def choose(rows):
        return rows["note"] == MARKER

    with monkeypatch.context() as patch:
        patch.setattr(History, "purge", crash)
        with pytest.raises(KeyboardInterrupt):
            vcmc.forget(run, conjugate.model, choose, progress=False)
    marker = np.float64(MARKER).tobytes()
    assert holds(run, marker)
    assert History(Store(run)).is_purge_due
    tree = vcmc.forget(run, conjugate.model, choose, progress=False)
    assert holds(run, marker) == []
    assert tree.attrs["update"] == 2


@pytest.mark.filterwarnings("ignore::vcmc.StoreWarning")
def test_a_column_that_the_model_does_not_read_says_who_is_deleted(tmp_path, conjugate):
    def regression(x, y=None):
        beta = numpyro.sample("beta", dist.Normal(0, 1 / np.sqrt([1.0, 4.0, 0.25])).to_event(1))
        numpyro.sample("y", dist.Normal(x @ beta, 1.0), obs=y)

    rows = {**conjugate.rows, "person": np.arange(1003) % 50}
    first, second = (
        {n: a[part] for n, a in rows.items()} for part in (slice(700), slice(700, None))
    )
    model = vcmc.from_numpyro(regression, conjugate.rows)
    vcmc.infer(model, vcmc.split(first, 3), store=tmp_path / "run", progress=False)
    vcmc.update(tmp_path / "run", model, second, num_shards=1, progress=False)
    tree = vcmc.forget(tmp_path / "run", model, lambda r: r["person"] == 17, progress=False)
    assert_posterior_is_of(tree, conjugate, rows["person"] != 17)


def test_wrong_requests_are_refused(run, conjugate, tmp_path):
    with pytest.raises(ValueError, match="one boolean per row"):
        vcmc.forget(run, conjugate.model, lambda rows: rows["note"])
    with pytest.raises(ValueError, match="none of the run's rows meets the condition"):
        vcmc.forget(run, conjugate.model, lambda rows: rows["note"] < -1)
    with pytest.raises(ValueError, match="all rows of the run"):
        vcmc.forget(run, conjugate.model, lambda rows: rows["note"] > -1)
    with pytest.raises(ValueError, match=r"asks for 'person', but .* columns \['note', 'x', 'y'\]"):
        vcmc.forget(run, conjugate.model, lambda rows: rows["person"] == 17)
    with pytest.raises(ValueError, match="from 0 to 7"):
        vcmc.forget(run, conjugate.model, [8])
    with pytest.raises(vcmc.StoreError, match="no run directory"):
        vcmc.forget(tmp_path / "missing", conjugate.model, [0])


def test_rows_in_a_folder_of_the_user_are_not_deleted(tmp_path, conjugate):
    partition = vcmc.split(conjugate.rows, 3, folder=tmp_path / "rows")
    vcmc.infer(conjugate.model, partition, store=tmp_path / "run", progress=False)
    with pytest.raises(vcmc.StoreError, match="split yourself"):
        vcmc.forget(tmp_path / "run", conjugate.model, lambda rows: rows["y"] > 0)


@pytest.mark.filterwarnings("ignore::vcmc.StoreWarning")
@pytest.mark.filterwarnings("ignore::vcmc.DoubtfulWarning")
def test_labels_of_groups_that_are_deleted_are_gone(tmp_path):
    model, rows = varying_means()
    vcmc.infer(model, rows, num_shards=3, store=tmp_path / "run", progress=False)
    label = np.array(["group 07"]).tobytes()
    assert holds(tmp_path / "run", label)
    tree = vcmc.forget(
        tmp_path / "run", model, lambda rows: rows["group"] == "group 07", progress=False
    )
    assert holds(tmp_path / "run", label) == []
    assert "group 07" not in tree["posterior"]["group"].to_numpy().tolist()
    assert tree["posterior"].sizes["group"] == 23


def cities(city, x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    level = numpyro.sample("level", dist.Normal(0, 1).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(level[city] + slope * x, 1.0), obs=y)


@pytest.mark.filterwarnings("ignore::vcmc.StoreWarning")
def test_levels_of_text_that_deleted_rows_alone_had_are_gone(tmp_path):
    generator = np.random.default_rng(0)
    names = np.array(["Aberdeen", "Marker", "York"])[np.arange(300) % 3]
    rows = {"city": names, "x": generator.normal(size=300), "y": generator.normal(size=300)}
    model = vcmc.from_numpyro(cities, rows)
    run = tmp_path / "run"
    vcmc.infer(model, rows, num_shards=2, store=run, progress=False)
    assert holds(run, b"Marker")
    tree = vcmc.forget(run, model, lambda r: (r["city"] == "Marker") | (r["x"] > 2), progress=False)
    assert holds(run, b"Marker") == []
    assert holds(run, b"York")  # a level of which only some rows are deleted
    assert tree["posterior"]["level"].shape[2] == 3
    more = {
        "city": names[names != "Marker"][:20],
        "x": generator.normal(size=20),
        "y": np.zeros(20),
    }
    assert vcmc.update(run, model, more, num_shards=1, progress=False).attrs["num_shards"] == 3
