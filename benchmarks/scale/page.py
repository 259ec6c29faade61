"""Write the section of benchmarks/README.md from the records."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import picture
from arena.tables import table
from curves import COLUMNS, fitted, measured, quantities
from network_page import network_lines, projection_lines
from points import CURVES
from workloads import (
    DIM,
    EXECUTOR_DIM,
    EXECUTOR_ROWS,
    EXECUTOR_SHARDS,
    GROUP_ROWS,
    LEVEL_ROWS,
    LEVEL_SHARDS,
    ROW_SHARDS,
    SHARD_DIM,
    SHARD_ROWS,
)

HEADING = "## `scale/`"
WIDTH = 120
PICTURE = Path(__file__).with_name("scale.png")
MAX_FREE_LOAD = 2.0  # processes per core before a point; above it, seconds say little
ABOUT = {
    "rows": f"**Rows**: logistic regression on Parquet files of {DIM + 1} columns, sorted by one "
    f"of them, K = {ROW_SHARDS}.",
    "shards": f"**Shards**: logistic regression, {SHARD_ROWS:,} rows × {SHARD_DIM} in memory.",
    "coordinates": f"**Coordinates**: logistic regression on two crossed categorical columns, a "
    f"coordinate per level, {LEVEL_ROWS:,} rows, K = {LEVEL_SHARDS}. The work of a row does not "
    "depend on the number of coordinates.",
    "groups": f"**Groups**: hierarchical logistic regression, intercept and slope of every group "
    f"local, {GROUP_ROWS} rows a group, K chosen by vcmc, without draws of the local "
    "parameters.",
}

Records = Sequence[dict[str, Any]]


def write_section(records: Records, readme: Path, is_quick: bool) -> None:
    """Replace the section of the README, and draw its picture."""
    picture.draw(records, PICTURE)
    lines = [_wrapped(line) for line in _lines(records, is_quick)]
    section = "\n".join([HEADING, "", *lines]).rstrip() + "\n"
    text = readme.read_text()
    before, found, after = text.partition(HEADING + "\n")
    if not found:
        readme.write_text(f"{text.rstrip()}\n\n{section}")
        return
    _, following, rest = after.partition("\n## ")
    readme.write_text(before + section + (f"\n## {rest}" if following else ""))


def _wrapped(line: str) -> str:
    """Return a paragraph in lines as long as those around it; tables stay as they are."""
    is_text = not line.startswith(("|", "!"))
    return textwrap.fill(line, WIDTH, break_on_hyphens=False) if is_text and line else line


def _lines(records: Records, is_quick: bool) -> list[str]:
    lines = [*_introduction(records, is_quick), "", "![cost curves](scale/scale.png)", ""]
    for sweep in CURVES:
        lines += [ABOUT[sweep], "", *_curve(records, sweep), ""]
    lines += [*_executors(records), ""]
    lines += [*network_lines(records), "", *projection_lines(records), ""]
    return lines


def _introduction(records: Records, is_quick: bool) -> list[str]:
    done = [record for record in records if "ended" in record]
    dates = sorted(record["ended"][:10] for record in done)
    loads = [record["load_before"] for record in done if "load_before" in record]
    cores = max((record["num_cores"] for record in done), default=0)
    minutes = sum(record["seconds_waited"] for record in done) / 60
    busy = bool(loads) and max(loads) > MAX_FREE_LOAD * cores
    when = f"{dates[0]}" + (f" to {dates[-1]}" if dates[-1] != dates[0] else "") if dates else "?"
    command = "python benchmarks/scale/scale.py" + (" --quick" if is_quick else "")
    remark = (
        "**The machine was busy with other work: compare processor seconds, not seconds.**"
        if busy
        else "The machine was otherwise idle."
    )
    return [
        f"`{command}`, {when}, {cores} cores, {minutes:.0f} minutes in all; load before a point "
        f"{min(loads, default=0):.0f} to {max(loads, default=0):.0f}. {remark}",
        "",
        "Runs are `infer` as it comes, on `Processes(2)`, each in processes of its own that "
        "compile everything. Seconds by stage are those of the result; memory is the peak of a "
        "process. *Exponent* is b in cost ∝ xᵇ, fitted to the upper half of the points (three at "
        "least), ± a standard error.",
    ]


def _curve(records: Records, sweep: str) -> list[str]:
    """Return the table of a curve: its points, failed ones too, and its exponents."""
    good = measured(records, sweep)
    used = [name for name in COLUMNS if any(quantities(each)[name] >= 0.05 for each in good)]
    names = ["seconds", *used, "processor s", "driver, MB", "process, MB"]
    rows = []
    for record in records:
        if record["sweep"] != sweep:
            continue
        if record["failure"]:
            cells = [record["failure"], *["–"] * len(names)]
        else:
            values = quantities(record)
            cells = [_number(values[name], name) for name in names]
            cells.append(f"K = {record['num_shards']}, {record['verdict']}")
        rows.append([f"{record['value']:,}", *cells])
    exponents = [_exponent(good, name) for name in names]
    rows.append(["exponent", *exponents, ""])
    return table([sweep, *names, ""], rows)


def _number(value: float, name: str) -> str:
    return f"{value:,.0f}" if "MB" in name or value >= 100 else f"{value:.1f}"


def _exponent(good: Records, name: str) -> str:
    exponent = fitted(
        [record["value"] for record in good], [quantities(record)[name] for record in good]
    )
    return str(exponent) if exponent else "–"


def _executors(records: Records) -> list[str]:
    """Return the table of the executors."""
    rows = []
    for record in records:
        if record["sweep"] != "executors":
            continue
        if record["failure"]:
            rows.append([str(record["value"]), record["failure"], *["–"] * 7])
            continue
        values = quantities(record)
        rows.append(
            [
                str(record["value"]),
                f"{record['seconds_processes']:.1f}",
                f"{values['seconds']:.1f}",
                f"{values['sampling']:.1f}",
                f"{values['combining'] + values['diagnosis']:.1f}",
                f"{record['cpu_driver']:.1f}",
                f"{record['cpu_workers']:.1f}",
                f"{values['driver, MB']:.0f}",
                ", ".join(f"{peak:.0f}" for peak in record["peak_workers_mb"]),
            ]
        )
    columns = (
        "executor",
        "its start, s",
        "run, s",
        "sampling",
        "combining, diagnosis",
        "processor s, driver",
        "workers",
        "driver, MB",
        "workers, MB",
    )
    about = (
        f"**Executors**: logistic regression, {EXECUTOR_ROWS:,} rows × {EXECUTOR_DIM} in "
        "memory, "
        f"K = {EXECUTOR_SHARDS}, by number of workers, all on this machine. Each compiles for "
        "itself. The draws are the same."
    )
    return [about, "", *table(columns, rows)]
