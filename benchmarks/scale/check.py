"""Check the projection: runs with simulated networks, against the messages of one without.

Rows of `2 processes`, `4 processes` and `16 machines` are sent in messages; `100 machines` load
theirs, and the projection to 10⁹ rows is made from these. Networks take turns.
"""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import workloads
from link import FAST, NO_NETWORK, SLOW, Network, RecordedSlots, Recorder, Round, Stage
from machines import Machines
from projection import by_slot, driver_seconds, in_rounds, on_its_own, projected
from workloads import Workload

import vcmc
from vcmc.executors import Processes

NETWORKS = (NO_NETWORK, FAST, SLOW)
PROJECTED_MACHINES = {False: 100, True: 20}
MACHINE_ROWS = {False: 5000, True: 1000}  # per machine
TARGET_ROWS = 10_000_000  # per machine in the projection: 10⁹ in 100 machines
REPEATS = {False: 3, True: 2}


def checked_network(value: str, is_quick: bool) -> dict[str, Any]:
    """Measure runs with each network, and project them from the one without."""
    number, kind = value.split()
    recorder = Recorder()
    recorder.follow_stages()
    machines = Machines(int(number)) if kind == "machines" else None
    workload = _workload(value, is_quick)
    with RecordedSlots(machines or Processes(int(number)), recorder) as executor:
        first = _run(workload, executor, recorder, NO_NETWORK)
        second = _run(workload, executor, recorder, NO_NETWORK)
        if machines:
            machines.memory.is_learning = False
        runs: dict[str, list[list[Stage]]] = {network.name: [] for network in NETWORKS}
        for _ in range(REPEATS[is_quick]):
            for network in NETWORKS:
                runs[network.name].append(_run(workload, executor, recorder, network))
    record: dict[str, Any] = {
        "check": [_compared(network, runs) for network in NETWORKS[1:]],
        "seconds": sum(stage.seconds for stage in first),
    }
    if workload.num_shards == PROJECTED_MACHINES[is_quick]:
        later = _middle(runs[NO_NETWORK.name])
        record["projection"] = _scaled(first, second, later, is_quick)
    return record


def _workload(value: str, is_quick: bool) -> Workload:
    """Return the rows of a point: many machines load them, few are sent them."""
    number, _ = value.split()
    if int(number) == PROJECTED_MACHINES[is_quick]:
        num_rows = MACHINE_ROWS[is_quick] * int(number)
        return workloads.from_loader(num_rows, workloads.EXECUTOR_DIM, int(number))
    num_rows = workloads.EXECUTOR_ROWS // (4 if is_quick else 1)
    return workloads.logistic(num_rows, workloads.EXECUTOR_DIM, workloads.EXECUTOR_SHARDS)


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


def _compared(network: Network, runs: dict[str, list[list[Stage]]]) -> dict[str, Any]:
    """Return measured and projected seconds by stage; medians over repeated runs."""
    without, with_network = runs[NO_NETWORK.name], runs[network.name]
    stages = {}
    for stage in _middle(without):
        same = [_named(run, stage.name) for run in without]
        projections = [projected(each, network) for each in same]
        delayed = [_named(run, stage.name) for run in with_network]
        overhead = statistics.median(
            in_rounds(each) - on_its_own(each, NO_NETWORK) for each in same
        )
        stages[stage.name] = {
            "rounds": len(stage.rounds),
            "messages": sum(len(round_.messages) for round_ in stage.rounds),
            "mb_sent": _megabytes(stage, "sent"),
            "mb_received": _megabytes(stage, "received"),
            "without": statistics.median(each.seconds for each in same),
            "rule": statistics.median(each["rule"] for each in projections),
            "replay": statistics.median(each["replay"] for each in projections),
            "own": overhead + statistics.median(on_its_own(each, network) for each in delayed),
            "measured_rounds": statistics.median(in_rounds(each) for each in delayed),
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


def _scaled(
    first: list[Stage], second: list[Stage], later: list[Stage], is_quick: bool
) -> dict[str, Any]:
    """Project the run to 10⁹ rows on 100 machines, each with cores of its own.

    What a machine computes takes time in proportion to rows: that of the median machine, as one of
    them compiled for all. Compiling, which is what the first run took beyond that, and the driver's
    own computing do not.
    """
    factor = TARGET_ROWS / MACHINE_ROWS[is_quick]
    stages = {}
    for stage in later:
        rounds = _named(second, stage.name).rounds
        computing = sum(_machine_seconds(round_, statistics.median) for round_ in rounds)
        of_first = _named(first, stage.name).rounds
        longest = sum(_machine_seconds(round_, max) for round_ in of_first)
        stages[stage.name] = {
            "driver": driver_seconds(stage),
            "compiling": max(0.0, longest - computing),
            "computing": factor * computing,
            **{
                network.name: projected(stage, network)["replay"] - stage.seconds
                for network in NETWORKS[1:]
            },
        }
    return {
        "rows_per_machine": TARGET_ROWS,
        "measured_rows": MACHINE_ROWS[is_quick],
        "stages": stages,
    }


def _machine_seconds(round_: Round, which: Callable[[list[float]], float]) -> float:
    """Return the seconds of the median machine, or of the slowest one."""
    queues = by_slot(round_).values()
    return which([sum(message.computing for message in queue) for queue in queues] or [0.0])
