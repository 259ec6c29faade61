import numpy as np
import pytest
from rich.console import Console

from vcmc.paper.base import AbstractExperiment, Folder, Job, Step, run_steps, time_left


@pytest.fixture
def console():
    return Console(record=True, width=120, force_terminal=False)


def steps_of(folder, done, names="abc"):
    def step(name):
        def make():
            if name == "b" and "stop" in done:
                raise KeyboardInterrupt
            done.append(name)
            return {"value": np.arange(3)}

        return Step(name, "kind", make, folder)

    return [step(name) for name in names]


def test_finished_steps_are_not_repeated_after_an_interruption(tmp_path, console):
    folder, done = Folder(tmp_path / "work"), ["stop"]
    with pytest.raises(KeyboardInterrupt):
        run_steps("test", steps_of(folder, done), console)
    assert done == ["stop", "a"]
    done.remove("stop")
    run_steps("test", steps_of(folder, done), console)
    assert done == ["a", "b", "c"]
    run_steps("test", steps_of(folder, done), console)
    assert done == ["a", "b", "c"]
    np.testing.assert_array_equal(folder.load("c")["value"], np.arange(3))
    assert "test: b" in console.export_text()


def test_an_incomplete_file_is_not_a_result(tmp_path, monkeypatch):
    folder = Folder(tmp_path)

    def half(file, **arrays):
        file.write_bytes(b"PK half")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", half)
    with pytest.raises(OSError, match="no space"):
        folder.save("a", {"value": 1})
    assert not folder.has("a")


def test_a_corrupt_file_is_named(tmp_path):
    folder = Folder(tmp_path)
    folder.save("a", {"value": np.arange(1000)})
    path = tmp_path / "a.npz"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(OSError, match=r"a\.npz cannot be read .*: remove it"):
        folder.load("a")


def test_settings_determine_the_folder(tmp_path):
    job = Job("small", tmp_path)
    assert job.folder("x", {"rows": 1}) == job.folder("x", {"rows": 1})
    assert job.folder("x", {"rows": 1}) != job.folder("x", {"rows": 2})
    assert job.folder("x", {"rows": 1}) != Job("small", tmp_path, seed=1).folder("x", {"rows": 1})


def test_remaining_time_is_estimated_by_steps_of_the_same_kind(tmp_path):
    folder = Folder(tmp_path)
    todo = [
        Step("x", "slow", dict, folder),
        Step("y", "quick", dict, folder),
        Step("z", "new", dict, folder),
    ]
    assert time_left(todo[:2], {"slow": [50.0, 70.0], "quick": [1.0]}) == "; about 61 s left"
    assert time_left(todo, {"slow": [300.0], "quick": [100.0]}) == "; about 10 min left"
    assert time_left([], {}) == ""


class Never(AbstractExperiment):
    name, title = "probit-0", "none"

    def steps(self, job):
        raise AssertionError("it was run")

    def finish(self, job):
        raise AssertionError("it was run")


def test_files_of_others_are_not_overwritten(tmp_path, console):
    (tmp_path / "probit-0-errors.csv").write_text("a table of the user's")
    with pytest.raises(FileExistsError, match=r"probit-0-errors.csv, which vcmc did not write"):
        Never().run(Job("small", tmp_path), console)
    (tmp_path / "work").mkdir()  # an earlier run wrote the table
    with pytest.raises(AssertionError, match="it was run"):
        Never().run(Job("small", tmp_path), console)
