import csv
import json
import os

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from vcmc.executors import Local
from vcmc.paper import speedup
from vcmc.paper.speedup import EXPERIMENT, SeparateMachines, one_core


@pytest.fixture
def in_process(experiment, monkeypatch):
    """Sample in this process: a spawned one would not know the experiment of these tests."""
    monkeypatch.setattr(speedup, "EXPERIMENTS", {experiment.name: experiment})
    monkeypatch.setattr(
        speedup, "run_on_one_core", lambda function, *arguments: function(*arguments)
    )


@pytest.mark.slow
def test_speed_up_is_serial_time_over_slowest_shard_and_combination(job, in_process):
    EXPERIMENT.run(job, Console(quiet=True))
    with (job.out / "speedup.csv").open() as file:
        entries = list(csv.DictReader(file))
    assert [(entry["num_shards"], entry["method"]) for entry in entries] == [
        (count, method) for count in ("2", "4") for method in ("Gaussian", "VCMC", "default")
    ]
    for entry in json.loads((job.out / "speedup.json").read_text())["seconds"]:
        total = entry["slowest_shard_seconds"] + entry["combine_seconds"]
        assert entry["speedup"] == pytest.approx(entry["serial_seconds"] / total)
        assert entry["combine_seconds_rows_apart"] > 0


@pytest.mark.slow
def test_separate_machines_evaluate_the_same_target(experiment, job):
    target = experiment.trial(job).target(4)
    machines = SeparateMachines(target.model, target.shard_cache.partition, Local())
    points = jnp.asarray(0.1 * np.arange(6.0).reshape(2, 3))
    for actual, expected in zip(machines(points), target(points), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-12)
    directions = jnp.eye(3)
    np.testing.assert_allclose(
        machines.hessian_products(points[0], directions),
        target.hessian_products(points[0], directions),
        rtol=1e-10,
    )
    assert machines.seconds_saved > 0


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="the system does not bind processes to cores"
)
def test_one_core_is_one_core():
    cores = os.sched_getaffinity(0)
    with one_core():
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == cores
