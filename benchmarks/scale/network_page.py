"""The tables of simulated networks: the check of the projection, and the projection itself."""

from collections.abc import Sequence
from typing import Any

from arena.tables import table
from workloads import EXECUTOR_DIM, EXECUTOR_SHARDS

NETWORKS = ("5 ms, 1 Gbit/s", "50 ms, 100 Mbit/s")
SMALL_SECONDS = 0.05  # stages below are in the sum only

Records = Sequence[dict[str, Any]]


def network_lines(records: Records) -> list[str]:
    """Return the check of the projection, by stage."""
    rows = []
    for record in records:
        if record["sweep"] != "network":
            continue
        if record["failure"]:
            rows.append([str(record["value"]), "", record["failure"], *["–"] * 10])
            continue
        for check in record["check"]:
            rows += _check_rows(str(record["value"]), check)
    columns = (
        "slots",
        "network",
        "stage",
        "rounds",
        "messages",
        "MB sent",
        "MB back",
        "without network, s",
        "rule of thumb, s",
        "projected, s",
        "measured, s",
        "projected / measured",
        "messages only",
    )
    about = [
        "**Network**: messages are delayed as by a network, in which the driver has one line to "
        "all machines: a message waits until the line is free, for its bytes to be sent, and for "
        f"the delay. Logistic regression, {EXECUTOR_DIM} coordinates, {EXECUTOR_SHARDS} shards in "
        "memory, which travel too, or a shard on each of many machines, which load theirs. "
        "*Processes* compute. *Machines* have computed once, in turns; they sleep as long as that "
        "took, all at the same time, and return what they had computed. So many machines are timed "
        "on few cores, and only the driver's own computing is disturbed by other work.",
        "",
        "Projected from a run without network: two delays for each message of a slot, bytes over "
        "bandwidth, computing on the critical path. The *rule of thumb* adds them up by round; the "
        "projection replays messages one by one, so that the line sends to one slot while another "
        "computes, and lets idle slots take tasks of others, with their rows. Medians of runs in "
        "turns, after a first one. *Messages only* replays the messages of the delayed run itself, "
        "and compares that with the seconds of its rounds: a check of the network without the "
        "noise of computing, be it in slots or in the driver.",
        "",
    ]
    return [*about, *table(columns, rows)]


def _check_rows(slots: str, check: dict[str, Any]) -> list[list[str]]:
    """Return the rows of one network: the stages, and their sum."""
    names = ("without", "rule", "replay", "measured")
    rows = []
    stages = check["stages"]
    total: dict[str, float] = dict.fromkeys(stages["sample"], 0.0)
    for name, values in stages.items():
        total = {key: total[key] + values[key] for key in total}
        if values["measured"] >= SMALL_SECONDS:
            rows.append(_check_row(slots, check["network"], name, values, names))
    rows.append(_check_row(slots, check["network"], "**in all**", total, names))
    return rows


def _check_row(
    slots: str, network: str, name: str, values: dict[str, float], names: tuple[str, ...]
) -> list[str]:
    return [
        slots,
        network,
        name,
        f"{values['rounds']:.0f}",
        f"{values['messages']:.0f}",
        f"{values['mb_sent']:.2f}",
        f"{values['mb_received']:.2f}",
        *(f"{values[key]:.2f}" for key in names),
        _ratio(values["replay"], values["measured"]),
        _ratio(values["own"], values["measured_rounds"]),
    ]


def _ratio(projected: float, measured: float) -> str:
    return f"{projected / measured:.2f}" if measured > 0 else "–"


def projection_lines(records: Records) -> list[str]:
    """Return the projection to 10⁹ rows on as many machines as were simulated."""
    found = [each for each in records if each["sweep"] == "network" and "projection" in each]
    lines = []
    for record in found:
        projection = record["projection"]
        machines = record["value"]
        num_rows = projection["rows_per_machine"] * int(str(machines).split()[0])
        lines += [
            f"**Projection: {num_rows:,} rows × {EXECUTOR_DIM} on {machines}**, a shard on each, "
            f"from shards of {projection['measured_rows']:,} rows: computing on the critical path "
            "in proportion to rows, with all cores of this machine in each of them; the driver's "
            "own computing, compilation and messages do not depend on rows. Reading rows is not "
            "counted.",
            "",
            *_projection_table(projection["stages"], record["check"][0]["stages"]),
        ]
    return lines


def _projection_table(
    stages: dict[str, dict[str, float]], counts: dict[str, dict[str, float]]
) -> list[str]:
    columns = (
        "stage",
        "messages",
        "MB to all machines",
        "MB back",
        "driver, s",
        "compiling, s",
        "computing, s",
        *(f"network of {name}, s" for name in NETWORKS),
    )
    sums = dict.fromkeys(("driver", "compiling", "computing", *NETWORKS), 0.0)
    rows = []
    for name, values in stages.items():
        sums = {key: sums[key] + values[key] for key in sums}
        if count := counts[name]["messages"]:
            sizes = [f"{counts[name][key]:.2f}" for key in ("mb_sent", "mb_received")]
            cells = [f"{count:.0f}", *sizes]
        else:
            cells = ["0", "0", "0"]
        rows.append([name, *cells, *(f"{values[key]:.1f}" for key in sums)])
    totals = [
        sum(count[key] for count in counts.values())
        for key in ("messages", "mb_sent", "mb_received")
    ]
    rows.append(
        [
            "**in all**",
            f"{totals[0]:.0f}",
            *(f"{total:.1f}" for total in totals[1:]),
            *(f"{value:.1f}" for value in sums.values()),
        ]
    )
    return table(columns, rows)
