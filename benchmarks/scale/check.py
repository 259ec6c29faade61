"""Check the projection: runs with simulated networks, against the messages of one without.

`2 processes`, `4 processes`: a logistic regression in memory, 16 shards, whose rows travel too.
`100 machines`: 100 shards that machines load themselves, in slots that compute in turns, so that
messages and bytes are those of 100 machines; the projection to 10⁹ rows is made from these.

Every run follows a first one that compiles. Networks take turns.
"""

import os
import statistics
from collections.abc import Sequence
from typing import Any

import workloads
from link import (
    FAST,
    NO_NETWORK,
    SLOW,
    Machines,
    Network,
    RecordedSlots,
    Recorder,
    Stage,
    recorded_processes,
)
from projection import UNLIMITED, driver_seconds, on_its_own, projected, replay
from workloads import Workload

import vcmc

NETWORKS = (NO_NETWORK, FAST, SLOW)
MACHINE_DIM = 50
MACHINE_ROWS = {False: 5000, True: 1000}  # per machine
TARGET_ROWS = 10_000_000  # per machine in the projection: 10⁹ in 100 machines
REPEATS = {False: 3, True: 2}


def checked_network(value: str, is_quick: bool) -> dict[str, Any]:
    """Measure runs with each network, and project them from the one without."""
    number, kind = value.split()
    recorder = Recorder()
    recorder.follow_stages()
    if kind == "processes":
        executor = recorded_processes(int(number), recorder)
        workload = workloads.logistic(
            workloads.EXECUTOR_ROWS // (4 if is_quick else 1), workloads.EXECUTOR_DIM, 16
        )
        cores = UNLIMITED  # seconds of messages were measured with as many at the same time
    else:
        executor = RecordedSlots(Machines(int(number)), recorder)
        num_rows = MACHINE_ROWS[is_quick] * int(number)
        workload = workloads.from_loader(num_rows, MACHINE_DIM, int(number))
        cores = 1
    with executor:
        first = _run(workload, executor, recorder, NO_NETWORK)
        runs: dict[str, list[list[Stage]]] = {network.name: [] for network in NETWORKS}
        for _ in range(REPEATS[is_quick]):
            for network in NETWORKS:
                runs[network.name].append(_run(workload, executor, recorder, network))
    record: dict[str, Any] = {
        "check": [_compared(network, runs, cores) for network in NETWORKS[1:]],
        "num_cores": os.cpu_count(),
        "seconds": sum(stage.seconds for stage in first),
    }
    if kind == "machines":
        record["projection"] = _scaled(first, _middle(runs[NO_NETWORK.name]), is_quick)
    return record


def _run(
    workload: Workload, executor: RecordedSlots, recorder: Recorder, network: Network
) -> list[Stage]:
    """Run `infer`, and return its stages."""
    recorder.restart(network)
    vcmc.infer(
        workload.model,
        workload.rows,
        num_shards=workload.num_shards,
        executor=executor,
        progress=False,
        compile_cache=False,
    )
    return recorder.stages


def _middle(runs: Sequence[list[Stage]]) -> list[Stage]:
    """Return the run of median length; of two, the shorter."""
    return sorted(runs, key=lambda stages: sum(stage.seconds for stage in stages))[
        (len(runs) - 1) // 2
    ]


def _compared(network: Network, runs: dict[str, list[list[Stage]]], cores: int) -> dict[str, Any]:
    """Return measured and projected seconds by stage; medians over repeated runs."""
    without, with_network = runs[NO_NETWORK.name], runs[network.name]
    stages = {}
    for stage in _middle(without):
        same = [_named(run, stage.name) for run in without]
        projections = [projected(each, network, cores) for each in same]
        delayed = [_named(run, stage.name) for run in with_network]
        driver = statistics.median(driver_seconds(each, cores) for each in same)
        stages[stage.name] = {
            "rounds": len(stage.rounds),
            "messages": sum(len(round_.messages) for round_ in stage.rounds),
            "mb_sent": _megabytes(stage, "sent"),
            "mb_received": _megabytes(stage, "received"),
            "without": statistics.median(each.seconds for each in same),
            "rule": statistics.median(each["rule"] for each in projections),
            "replay": statistics.median(each["replay"] for each in projections),
            "own": statistics.median(on_its_own(each, driver, network, cores) for each in delayed),
            "measured": statistics.median(each.seconds for each in delayed),
        }
    return {"network": network.name, "stages": stages}


def _named(run: list[Stage], name: str) -> Stage:
    """Return a stage by its name."""
    return next(stage for stage in run if stage.name == name)


def _megabytes(stage: Stage, direction: str) -> float:
    return (
        sum(getattr(message, direction) for round_ in stage.rounds for message in round_.messages)
        / 1e6
    )


def _scaled(first: list[Stage], later: list[Stage], is_quick: bool) -> dict[str, Any]:
    """Project the run to 10⁹ rows on 100 machines, each with cores of its own.

    Evaluating and sampling take time in proportion to rows; compiling, which is the difference
    between the first run and later ones, and the driver's own computing do not.
    """
    factor = TARGET_ROWS / MACHINE_ROWS[is_quick]
    stages = {}
    for stage in later:
        computing = sum(replay(round_, NO_NETWORK) for round_ in stage.rounds)
        of_first = sum(replay(round_, NO_NETWORK) for round_ in _named(first, stage.name).rounds)
        stages[stage.name] = {
            "driver": driver_seconds(stage, 1),
            "compiling": max(0.0, of_first - computing),
            "computing": factor * computing,
            **{
                network.name: sum(
                    replay(round_, network) - replay(round_, NO_NETWORK) for round_ in stage.rounds
                )
                for network in NETWORKS[1:]
            },
        }
    return {
        "rows_per_machine": TARGET_ROWS,
        "measured_rows": MACHINE_ROWS[is_quick],
        "stages": stages,
    }
