"""The history of a run directory, and going back."""

import numpy as np
import pytest

import vcmc


@pytest.fixture
def run(tmp_path, conjugate):
    first, second = (
        {n: a[part] for n, a in conjugate.rows.items()} for part in (slice(500), slice(500, 800))
    )
    vcmc.infer(conjugate.model, first, num_shards=2, store=tmp_path / "run", progress=False)
    assert str(vcmc.history(tmp_path / "run")).splitlines()[1].startswith("0 *")
    vcmc.update(
        tmp_path / "run", conjugate.model, second, name="second", num_shards=1, progress=False
    )
    return tmp_path / "run"


def test_a_history_prints_as_a_table(run):
    states = vcmc.history(run)
    header, first, second = str(states).splitlines()
    assert header.split()[:2] == ["state", "from"]
    assert first.split()[0] == "0"
    assert second.split()[:3] == ["1", "*", "0"]
    assert "second" in second
    assert "+300" in second
    assert [state.total_rows for state in states] == [500, 800]
    assert "<pre>" in states._repr_html_()


def test_a_run_goes_back_and_on_in_another_way(run, conjugate):
    later = vcmc.load(run)["posterior"]["beta"].to_numpy()
    tree = vcmc.restore(run, 0)
    assert "updates" not in tree.children
    third = {name: array[800:] for name, array in conjugate.rows.items()}
    tree = vcmc.update(run, conjugate.model, third, num_shards=1, progress=False)
    assert tree["updates"]["num_rows"].to_numpy().tolist() == [500, 203]
    assert [state.parent for state in vcmc.history(run)] == [None, 0, 0]
    np.testing.assert_array_equal(vcmc.restore(run, 1)["posterior"]["beta"].to_numpy(), later)
    assert vcmc.history(run).current == 1
    with pytest.raises(vcmc.StoreError, match=r"no state 7; it has the states \[0, 1, 2\]"):
        vcmc.restore(run, 7)


def test_the_call_of_infer_still_returns_its_own_result(run, conjugate):
    first = {name: array[:500] for name, array in conjugate.rows.items()}
    tree = vcmc.infer(conjugate.model, first, num_shards=2, store=run, progress=False)
    assert tree.attrs["num_shards"] == 2
    assert vcmc.load(run).attrs["num_shards"] == 3


def test_a_folder_without_a_run_has_no_history(tmp_path):
    with pytest.raises(vcmc.StoreError, match="no run directory"):
        vcmc.history(tmp_path / "missing")
    with pytest.raises(vcmc.StoreError, match="not finished"):
        vcmc.history(tmp_path)
