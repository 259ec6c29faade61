"""Adding rows to a posterior: against closed forms, and against one run on all rows."""

from itertools import pairwise

import numpy as np
import pytest

import vcmc


def parts_of(rows, ends):
    """Return consecutive rows, divided at `ends`."""
    bounds = [0, *ends, len(next(iter(rows.values())))]
    return [
        {name: array[begin:end] for name, array in rows.items()} for begin, end in pairwise(bounds)
    ]


@pytest.fixture(scope="module")
def batches(conjugate):
    """The rows of the conjugate problem in three batches."""
    count = len(conjugate.rows["y"])
    return parts_of(conjugate.rows, [count // 2, 3 * count // 4])


@pytest.fixture
def run(tmp_path, conjugate, batches):
    """A run directory with the first batch, in two shards."""
    vcmc.infer(conjugate.model, batches[0], num_shards=2, store=tmp_path / "run", progress=False)
    return tmp_path / "run"


def assert_is_posterior(tree, conjugate):
    """A Gaussian posterior, whose moments have no Monte Carlo error."""
    mean, covariance = conjugate.posterior()
    draws = tree["posterior"]["beta"].to_numpy().reshape(-1, len(mean))
    sds = np.sqrt(np.diag(covariance))
    assert np.abs((draws.mean(axis=0) - mean) / sds).max() < 1e-3
    assert np.abs(draws.std(axis=0) / sds - 1).max() < 1e-3
    assert tree.attrs["verdict"] == "good"


def files_below(folder):
    """Return the contents of all files by their paths."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_updated_conjugate_posterior_is_that_of_all_rows(run, conjugate, batches):
    vcmc.update(run, conjugate.model, batches[1], num_shards=1, progress=False)
    tree = vcmc.update(run, conjugate.model, batches[2], num_shards=1, progress=False)
    assert_is_posterior(tree, conjugate)
    assert tree["shard_batches"]["batch"].to_numpy().tolist() == [0, 0, 1, 2]
    assert tree["updates"]["num_rows"].to_numpy().tolist() == [len(b["y"]) for b in batches]
    np.testing.assert_array_equal(
        vcmc.load(run)["posterior"]["beta"].to_numpy(), tree["posterior"]["beta"].to_numpy()
    )


def test_only_new_shards_are_sampled(run, conjugate, batches):
    before = files_below(run / "draws")
    tree = vcmc.update(run, conjugate.model, batches[1], num_shards=1, progress=False)
    assert files_below(run / "draws") == before
    own = run / "updates" / "0001" / "draws"
    assert {path.name.split("-")[0] for path in own.iterdir() if path.is_dir()} == {"00000"}
    stored = vcmc.load(run)["subposterior"]["beta"]
    np.testing.assert_array_equal(tree["subposterior"]["beta"].to_numpy(), stored.to_numpy())


def test_a_result_is_updated_with_its_rows(conjugate, batches):
    tree = vcmc.infer(conjugate.model, batches[0], num_shards=2, progress=False)
    earlier = batches[0]
    for number in (1, 2):
        tree = vcmc.update(
            tree, conjugate.model, batches[number], rows=earlier, num_shards=1, progress=False
        )
        earlier = {n: np.concatenate([earlier[n], batches[number][n]]) for n in earlier}
    assert_is_posterior(tree, conjugate)
    assert tree["updates"].sizes["update"] == 3


def test_shards_with_different_numbers_of_draws_are_combined(conjugate, batches):
    tree = vcmc.infer(conjugate.model, batches[0], num_shards=1, progress=False)
    tree = vcmc.update(
        tree, conjugate.model, batches[1], rows=batches[0], num_shards=1, progress=False
    )
    assert len(set(np.atleast_1d(tree.attrs["draw_counts"]).tolist())) == 2
    earlier = {n: np.concatenate([batches[0][n], batches[1][n]]) for n in batches[0]}
    tree = vcmc.update(
        tree, conjugate.model, batches[2], rows=earlier, num_shards=1, progress=False
    )
    assert_is_posterior(tree, conjugate)


def test_few_new_rows_are_merged_with_small_earlier_shards(run, conjugate, batches):
    few, others = parts_of(batches[1], [7])
    vcmc.update(run, conjugate.model, few, progress=False)
    tree = vcmc.update(run, conjugate.model, others, progress=False)
    assert tree.attrs["num_shards"] <= 4
    assert min(np.atleast_1d(tree.attrs["shard_sizes"])) > 7
    assert sum(np.atleast_1d(tree.attrs["shard_sizes"])) == len(batches[0]["y"]) + len(
        batches[1]["y"]
    )


def test_rows_that_are_there_already_are_not_counted_twice(run, conjugate, batches):
    first = vcmc.update(run, conjugate.model, batches[1], num_shards=1, name="feb", progress=False)
    shuffled = {name: array[::-1] for name, array in batches[1].items()}
    with pytest.warns(vcmc.StoreWarning, match="update 1, 'feb'"):
        again = vcmc.update(run, conjugate.model, shuffled, num_shards=2, progress=False)
    np.testing.assert_array_equal(
        again["posterior"]["beta"].to_numpy(), first["posterior"]["beta"].to_numpy()
    )
    with pytest.warns(vcmc.StoreWarning, match="those of the run"):
        vcmc.update(run, conjugate.model, batches[0], progress=False)
    assert len(vcmc.history(run)) == 2


def test_a_result_refuses_rows_that_it_has(conjugate, batches):
    tree = vcmc.infer(conjugate.model, batches[0], num_shards=2, progress=False)
    with pytest.raises(ValueError, match="in the result already"):
        vcmc.update(tree, conjugate.model, batches[0], rows=batches[0])
    with pytest.raises(ValueError, match="without the new ones"):
        vcmc.update(tree, conjugate.model, batches[1], rows=conjugate.rows)


def test_other_columns_and_models_are_refused(run, conjugate, batches):
    with pytest.raises(ValueError, match=r"\['y'\] are missing"):
        vcmc.update(run, conjugate.model, {"x": batches[1]["x"]})
    with pytest.raises(ValueError, match=r"\['z'\] are not among them"):
        vcmc.update(run, conjugate.model, {**batches[1], "z": batches[1]["y"]})

    def prior(params):
        return 2.0 * conjugate.model.log_prior(params)

    other = vcmc.Model(
        dict(conjugate.model.space), log_prior=prior, log_likelihood=conjugate.model.log_likelihood
    )
    with pytest.raises(vcmc.StoreError, match="another model"):
        vcmc.update(run, other, batches[1])
    with pytest.raises(vcmc.StoreError, match="no run directory"):
        vcmc.update(run / "missing", conjugate.model, batches[1])
    tree = vcmc.load(run)
    elsewhere = vcmc.Model(
        {"beta": vcmc.Positive(3)},
        log_prior=conjugate.model.log_prior,
        log_likelihood=conjugate.model.log_likelihood,
    )
    with pytest.raises(ValueError, match="another model"):
        vcmc.update(tree, elsewhere, batches[1], rows=batches[0])


def test_an_unfinished_run_is_refused(run, conjugate, batches):
    (run / "tree.npz").unlink()
    with pytest.raises(vcmc.StoreError, match="not finished"):
        vcmc.update(run, conjugate.model, batches[1])


def test_rows_that_the_directory_lacks_are_given(tmp_path, conjugate, batches):
    parts = parts_of(batches[0], [len(batches[0]["y"]) // 2])
    rows = vcmc.LazyRows(lambda shard: parts[shard], 2)
    vcmc.infer(conjugate.model, rows, store=tmp_path / "run", progress=False)
    with pytest.raises(vcmc.StoreError, match="rows=rows"):
        vcmc.update(tmp_path / "run", conjugate.model, batches[1])
    other = vcmc.LazyRows(lambda shard: parts[1 - shard], 2)
    with pytest.raises(vcmc.StoreError, match="not those of the run"):
        vcmc.update(tmp_path / "run", conjugate.model, batches[1], rows=other)
    vcmc.update(
        tmp_path / "run", conjugate.model, batches[1], rows=rows, num_shards=1, progress=False
    )
    tree = vcmc.update(tmp_path / "run", conjugate.model, batches[2], num_shards=1, progress=False)
    assert_is_posterior(tree, conjugate)
