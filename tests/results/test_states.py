"""States on the disk: written last, replaced in one step, and said to be damaged if they are."""

from dataclasses import replace

import pytest

from vcmc.data.row_digest import RowDigest
from vcmc.errors import StoreError
from vcmc.results.states import History, ShardName, State, check_not_reduced, current_run
from vcmc.results.store import Store

STATE = State(
    number=0,
    parent=None,
    action="run",
    name="",
    time="2026-01-01T00:00:00+00:00",
    num_rows=5,
    total_rows=5,
    verdict="good",
    shards=(ShardName(0, 0),),
    batches=(0,),
    shapes=((1, 100),),
    digest=RowDigest(5, 2**63),
    settings={"seed": 0},
)


@pytest.fixture
def history(tmp_path):
    history = History(Store(tmp_path))
    history.write(STATE)
    for number, parent in ((1, 0), (2, 1), (3, 0)):
        history.begin(number, {"digest": number})
        history.write(replace(STATE, number=number, parent=parent))
    history.go_to(2)
    return history


def test_states_are_read_as_they_were_written(history):
    assert history.state(0) == STATE
    assert [state.number for state in history.states()] == [0, 1, 2, 3]
    assert [state.number for state in history.lineage(2)] == [0, 1, 2]
    assert [state.number for state in history.lineage(3)] == [0, 3]
    assert history.next_number() == 4
    assert current_run(history.store.folder).folder.name == "0002"


def test_a_request_goes_on_and_another_begins_anew(history):
    assert not history.begin(4, {"digest": 7})
    (history.run(4).folder / "draws").mkdir()
    assert history.begin(4, {"digest": 7})
    assert (history.run(4).folder / "draws").exists()
    assert not history.begin(4, {"digest": 8})
    assert not (history.run(4).folder / "draws").exists()
    assert history.complete_number({"digest": 7}) is None
    assert history.complete_number({"digest": 3}) == 3


def test_damaged_files_are_named(history):
    (history.folder / "current.json").write_text("{}")
    with pytest.raises(StoreError, match=r"current\.json cannot be read"):
        _ = history.current
    (history.folder / "0001" / "state.json").write_text("{}")
    with pytest.raises(StoreError, match=r"0001/state\.json cannot be read"):
        history.states()


def test_a_purge_leaves_the_current_state_alone(history):
    root = history.store.folder
    for name in ("tree.npz", "run.json", "report.html", "mine.txt"):
        (root / name).write_text("x")
    (root / "draws").mkdir()
    history.go_to(3, is_purge_due=True)
    assert history.is_purge_due
    history.purge()
    assert sorted(path.name for path in root.iterdir()) == ["mine.txt", "updates"]
    assert [state.number for state in history.states()] == [3]
    assert not history.is_purge_due
    with pytest.raises(StoreError, match="rows were deleted"):
        check_not_reduced(history.store)


def test_a_folder_without_updates_is_plain(tmp_path):
    history = History(Store(tmp_path))
    assert history.is_plain()
    assert history.current == 0
    check_not_reduced(history.store)
    with pytest.raises(StoreError, match="no state 1"):
        history.state(1)
