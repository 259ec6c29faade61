import csv
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import vcmc
from vcmc.paper import Job
from vcmc.paper.base import Folder
from vcmc.paper.errors_by_shards import _easiest

METHODS = ["uniform", "Gaussian", "full Gaussian", "VCMC", "default"]


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_the_table_has_every_method_class_and_number_of_shards(job):
    entries = read(job.out / "tiny.csv")
    keys = {(int(entry["num_shards"]), entry["method"], entry["functions"]) for entry in entries}
    classes = ["first", "pure second", "mixed second"]
    expected = {(count, method, name) for count in (2, 4) for method in METHODS for name in classes}
    expected |= {(1, "floor", name) for name in classes} | {
        (4, "refined", name) for name in classes
    }
    assert keys == expected
    for entry in entries:
        assert float(entry["error_lower"]) <= float(entry["error"]) <= float(entry["error_upper"])


@pytest.mark.slow
def test_errors_are_those_of_plain_averages(experiment, job):
    """Compute the uniform average again from the stored draws."""
    trial = experiment.trial(job)
    chains = [trial.serial_folder.load(f"serial-{index}") for index in range(2)]
    exact = np.mean([chain["followed"].mean(axis=0) for chain in chains], axis=0)
    draws = trial.folder.load("shards-4")["draws"]
    tree = vcmc.combine({"beta": draws}, combiner=vcmc.combiners.Average())
    mean = tree["posterior"]["beta"].mean(("chain", "draw")).to_numpy()
    error = np.median(np.abs(mean - exact) / np.abs(exact))
    (entry,) = (
        entry
        for entry in read(job.out / "tiny.csv")
        if (entry["num_shards"], entry["method"], entry["functions"]) == ("4", "uniform", "first")
    )
    assert float(entry["error"]) == pytest.approx(error, rel=1e-3)


@pytest.mark.slow
def test_shards_are_those_that_infer_draws(experiment, job):
    trial = experiment.trial(job)
    tree = trial.sample(trial.partition(2), None, trial.problem.sampler, seed=0)
    assert tree["subposterior"]["beta"].shape == (2, 1, 150, 3)
    stored = trial.folder.load("shards-2")["draws"]
    np.testing.assert_array_equal(tree["subposterior"]["beta"].to_numpy()[:, 0], stored)


@pytest.mark.slow
def test_the_default_is_near_the_floor(job):
    errors = {
        (entry["method"], entry["num_shards"]): float(entry["error"])
        for entry in read(job.out / "tiny.csv")
        if entry["functions"] == "first"
    }
    # medians of three errors, each a multiple of a serial chain's Monte Carlo error; averages are
    # biased by as much again
    assert errors["default", "4"] < 4 * errors["floor", "1"]
    assert errors["default", "4"] < errors["Gaussian", "4"]


@pytest.mark.slow
def test_settings_can_be_read(job):
    settings = json.loads((job.out / "tiny.json").read_text())
    assert settings["scale"]["num_rows"] == 400
    assert settings["serial"]["num_chains"] == 3
    assert settings["serial"]["largest_rhat"] < 1.05  # of chains of 150 draws
    assert settings["machine"]["cores"] >= 1
    assert settings["versions"]["vcmc"]
    assert set(settings["shards"]) == {"2", "4"}


@pytest.mark.slow
def test_the_figure_is_drawn(job):
    assert (job.out / "tiny.png").stat().st_size > 20_000
    assert "<svg" in (job.out / "tiny.svg").read_text()[:1000]


@pytest.mark.slow
def test_an_interrupted_run_writes_the_same_numbers(experiment, job, tmp_path, monkeypatch):
    """Serial chains are reused; the interruption comes in the middle of the other steps."""
    other = Job("small", tmp_path)
    shutil.copytree(
        experiment.trial(job).serial_folder.path, experiment.trial(other).serial_folder.path
    )
    save = Folder.save

    def interrupted(folder, name, arrays):
        if name == "default-2":
            raise KeyboardInterrupt
        save(folder, name, arrays)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            experiment.run(other, Console(quiet=True))
    assert not (tmp_path / "tiny.csv").exists()
    experiment.run(other, Console(quiet=True))
    for end in (".csv", ".svg"):
        assert (tmp_path / f"tiny{end}").read_bytes() == (job.out / f"tiny{end}").read_bytes()


def test_the_easiest_functions_are_those_with_the_smallest_errors():
    errors = [np.array([0.1, 0.5, 0.2, 0.3]), np.array([0.1, 0.0, 0.9, 0.2])]
    np.testing.assert_array_equal(_easiest(errors, 0.5), [0, 3])
    np.testing.assert_array_equal(_easiest(errors, 1.0), np.arange(4))


@pytest.mark.slow
def test_easiest_functions_have_files_of_their_own(experiment, job):
    written = experiment.run(replace(job, easiest=0.7), Console(quiet=True))
    assert {path.name for path in written} == {
        f"tiny-easiest-70.{end}" for end in ("csv", "json", "png", "svg")
    }
