"""States with their rows and draws."""

import numpy as np
import pytest

import vcmc
from vcmc.data.row_digest import row_digest
from vcmc.executors import Local
from vcmc.inference.run_history import RunHistory, stored_chains
from vcmc.results.states import History
from vcmc.results.store import Store


@pytest.fixture
def runs(tmp_path, conjugate):
    rows = {name: array[:500] for name, array in conjugate.rows.items()}
    vcmc.infer(conjugate.model, rows, num_shards=2, store=tmp_path, progress=False)
    return RunHistory(History(Store(tmp_path)), conjugate.model, Local())


def test_the_first_state_is_what_infer_made(runs, conjugate):
    state = runs.state()
    assert state.total_rows == 500
    assert state.digest == row_digest({n: a[:500] for n, a in conjugate.rows.items()})
    assert state.settings["seed"] == 0
    shards = runs.shards(state)
    assert [shard.num_rows for shard in shards] == [250, 250]
    draws = vcmc.load(runs.folder)["subposterior"]["beta"].to_numpy()
    np.testing.assert_array_equal(
        np.stack([[chain.points for chain in shard.chains] for shard in shards]), draws
    )


def test_a_run_that_was_extended_has_the_draws_of_its_state(runs, conjugate, tmp_path):
    before = runs.shards(runs.state())
    rows = {name: array[:500] for name, array in conjugate.rows.items()}
    num_draws = before[0].shape[1]
    vcmc.infer(
        conjugate.model,
        rows,
        num_shards=2,
        shard_draws=num_draws + 64,
        store=tmp_path,
        progress=False,
    )
    (chain,) = stored_chains(Store(tmp_path), 0, before[0].shape)
    np.testing.assert_array_equal(chain.points, before[0].chains[0].points)


def test_missing_draws_rows_and_results_are_named(runs, tmp_path):
    state = runs.state()
    next((tmp_path / "draws" / "00001-0").glob("00000.npz")).unlink()
    with pytest.raises(vcmc.StoreError, match=r"draws of shard 1 .* are missing or damaged"):
        runs.shards(state)
    (tmp_path / "tree.npz").write_bytes(b"")
    with pytest.raises(vcmc.StoreError, match=r"result of state 0 .* is missing or damaged"):
        runs.tree(0)
    (tmp_path / "rows" / "rows.json").unlink()
    with pytest.raises(vcmc.StoreError, match="does not have the rows"):
        runs.rows(state.shards)
