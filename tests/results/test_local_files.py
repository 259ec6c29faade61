"""Local draws in a run directory: complete and unaltered, or drawn again."""

import numpy as np
import pytest

from vcmc.errors import StoreError
from vcmc.results.local_files import (
    LocalPart,
    LocalsFolder,
    LocalsWriter,
    file_checksum,
    identity_of,
    new_file,
)

pq = pytest.importorskip("pyarrow.parquet")

PART = LocalPart({"alpha": np.arange(6.0).reshape(2, 3)}, np.ones(3))


@pytest.fixture
def folder(tmp_path):
    return LocalsFolder(tmp_path / "locals")


def test_a_part_is_read_as_it_was_stored(folder):
    folder.begin("a")
    folder.save(3, "a", PART)
    part = folder.part(3, "a")
    np.testing.assert_array_equal(part.values["alpha"], PART.values["alpha"])
    assert part.is_stored
    assert folder.part(3, "b") is None
    assert folder.part(2, "a") is None


def test_a_part_whose_file_is_damaged_is_not_used(folder):
    folder.begin("a")
    folder.save(0, "a", PART._replace(content=b"parquet", checksum=""))
    checksum = file_checksum(folder.parquet(0))
    folder.save(0, "a", PART._replace(checksum=checksum))
    assert folder.part(0, "a") is not None
    folder.parquet(0).write_bytes(b"parquer")
    assert folder.part(0, "a") is None
    folder.parquet(0).unlink()
    assert folder.part(0, "a") is None


def test_other_draws_are_deleted_at_the_beginning(folder):
    folder.begin("a")
    folder.save(0, "a", PART._replace(content=b"parquet"))
    (folder.path / ".00001.parquet.1-2.new").touch()
    folder.begin("a")
    assert folder.part(0, "a") is not None
    folder.begin("b")
    assert {path.name for path in folder.path.iterdir()} == {"shared.json"}


def test_a_folder_is_known_by_its_token(folder, tmp_path):
    token = folder.begin("a")
    assert folder.is_shared(token)
    assert not folder.is_shared("other")
    assert not LocalsFolder(tmp_path / "elsewhere").is_shared(token)


def test_parts_without_files_are_deleted_when_the_result_has_them(folder):
    folder.begin("a")
    folder.save(0, "a", PART)
    folder.save(1, "a", PART._replace(content=b"parquet"))
    folder.discard_parts()
    assert folder.part(0, "a") is None
    assert folder.part(1, "a") is not None


def test_rows_are_sorted_by_group_chain_and_draw(tmp_path, monkeypatch):
    monkeypatch.setattr("vcmc.results.local_files.ROW_GROUP_ROWS", 12)
    generator = np.random.default_rng(0)
    labels = np.array(["a", "b", "c", "d", "e"])
    values = {"x": generator.normal(size=(6, 5)), "z": generator.normal(size=(6, 5, 2, 2))}
    writer = LocalsWriter(tmp_path / "a.parquet", "county", num_chains=2)
    for chosen in (slice(0, 3), slice(3, 5)):
        writer.write(labels[chosen], {name: array[:, chosen] for name, array in values.items()})
    writer.close()
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.column_names == ["county", "chain", "draw", "x", "z"]
    frame = table.to_pandas()
    assert frame["county"].tolist() == np.repeat(labels, 6).tolist()
    assert frame["chain"].tolist() == [0, 0, 0, 1, 1, 1] * 5
    assert frame["draw"].tolist() == [0, 1, 2] * 10
    np.testing.assert_array_equal(frame["x"], values["x"].T.ravel())
    np.testing.assert_array_equal(np.stack(frame["z"])[7], values["z"][1, 1].ravel())
    sizes = pq.ParquetFile(tmp_path / "a.parquet").metadata
    assert [sizes.row_group(number).num_rows for number in range(3)] == [12, 6, 12]


def test_a_file_that_was_not_finished_is_not_there(tmp_path):
    def write_half():
        with new_file(tmp_path / "a") as new:
            new.write_text("half")
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        write_half()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="could not be written"), new_file(tmp_path / "file" / "a"):
        pass


def test_an_identity_depends_on_arrays_and_settings():
    ones = np.ones(2)
    texts = {
        identity_of(ones, mode="a"),
        identity_of(ones, mode="b"),
        identity_of(ones.astype("f4"), mode="a"),
        identity_of(2 * ones, mode="a"),
    }
    assert len(texts) == 4
    assert identity_of(np.ones(2), mode="a") in texts
