"""New rows have the columns and types of the earlier ones."""

import numpy as np
import pytest

from vcmc.inference.new_rows import conformed, read_new_rows

KINDS = {"x": np.zeros((3, 2)), "y": np.zeros(3, np.int64)}


def test_numbers_are_converted_without_loss():
    rows = conformed({"x": np.ones((2, 2), int), "y": np.array([1.0, 2.0])}, KINDS, None)
    assert rows["x"].dtype == float
    assert rows["y"].dtype == np.int64
    with pytest.raises(ValueError, match=r"'y'\] was of the type int64, .* e\.g\. .*0\.5"):
        conformed({"x": np.ones((2, 2)), "y": np.array([1.0, 0.5])}, KINDS, None)
    with pytest.raises(ValueError, match=r"'x'\] has \(3,\) in place of \(2,\)"):
        conformed({"x": np.ones((2, 3)), "y": np.ones(2)}, KINDS, None)


def test_labels_of_groups_of_another_type_are_refused():
    numbers, text = {"g": np.array([1, 2])}, {"g": np.array(["01", "02"])}
    for kinds, rows in ((text, numbers), (numbers, text)):
        with pytest.raises(ValueError, match=r"labels of groups: .* '01'"):
            conformed(rows, kinds, "g")
    for rows in (numbers, text):
        assert conformed(rows, rows, "g") == rows


def test_rows_in_files_and_in_memory_are_the_same(tmp_path, conjugate):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"y": conjugate.rows["y"][:50], "x": conjugate.rows["y"][50:100]})
    frame.to_parquet(tmp_path / "rows.parquet")
    kinds = {"x": np.zeros(1), "y": np.zeros(1)}
    found = [
        read_new_rows(rows, conjugate.model, None, kinds, None, lambda size: 2)
        for rows in (frame, str(tmp_path / "rows.parquet"))
    ]
    assert found[0].digest == found[1].digest
    assert found[1].whole is not None


def test_a_batch_beyond_memory_is_read_shard_by_shard(tmp_path, conjugate, monkeypatch):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("vcmc.inference.new_rows.MAX_BATCH_BYTES", 100)
    pd.DataFrame({"y": np.arange(50.0)}).to_parquet(tmp_path / "rows.parquet")
    found = read_new_rows(
        str(tmp_path / "rows.parquet"), conjugate.model, None, {"y": np.zeros(1)}, None, lambda _: 3
    )
    assert found.whole is None
    assert sorted(len(shard["y"]) for shard in found.shards) == [16, 17, 17]
    assert found.digest.num_rows == 50
