import csv
import json

import pytest
from rich.console import Console

from vcmc.paper import timing
from vcmc.paper.timing import EXPERIMENT


@pytest.mark.slow
def test_errors_fall_with_iterations(experiment, job, monkeypatch):
    monkeypatch.setattr(timing, "EXPERIMENTS", (experiment,))
    monkeypatch.setattr(timing, "ITERATIONS", {"VCMC": (1, 4), "default": (1, 10)})
    written = EXPERIMENT.run(job, Console(quiet=True))
    assert {path.suffix for path in written} == {".csv", ".json", ".png", ".svg"}
    with (job.out / "timing.csv").open() as file:
        entries = list(csv.DictReader(file))
    assert len(entries) == 2 * 4
    assert "seconds" not in entries[0]  # which differ between runs
    errors = {
        (entry["num_shards"], entry["method"], entry["iterations"]): float(entry["error"])
        for entry in entries
    }
    assert errors["4", "default", "10"] < errors["4", "default", "1"]
    seconds = json.loads((job.out / "timing.json").read_text())["seconds"]
    assert all(entry["seconds"] > 0 for entry in seconds)
    with (job.out / "tiny.csv").open() as file:  # the same number of iterations, so the same error
        (same,) = (
            entry
            for entry in csv.DictReader(file)
            if (entry["num_shards"], entry["method"], entry["functions"]) == ("2", "VCMC", "first")
        )
    assert float(same["error"]) == errors["2", "VCMC", "4"]
