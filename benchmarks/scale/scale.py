"""Cost against rows, shards, coordinates, groups, executors and networks, in one command.

Every point is measured in a process of its own, with a time limit. Records are stored in
`benchmarks/scale/records/`, so that an interrupted run goes on where it was; a point that failed or
exceeded its limit has a record that says so, and is shown. In the end the section `scale/` of
benchmarks/README.md is written anew, and the picture `benchmarks/scale/scale.png`.

Run on an idle machine with 5 GB of free disk (40 minutes on two cores, by an estimate):

    .venv/bin/python benchmarks/scale/scale.py
    .venv/bin/python benchmarks/scale/scale.py --only network --quick
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

FOLDER = Path(__file__).parent
sys.path.append(str(FOLDER.parent))  # for arena/tables.py

from page import write_section  # noqa: E402
from points import SWEEPS, Point, points  # noqa: E402

README = FOLDER.parent / "README.md"


def main() -> None:
    options = _options()
    records = FOLDER / ("records-quick" if options.quick else "records")
    records.mkdir(exist_ok=True)
    chosen = options.only or list(SWEEPS)
    begin = time.perf_counter()
    if not options.page_only:
        for point in points(chosen, options.quick):
            _measure(point, records / f"{point.name}.json", options)
        sys.stdout.write(f"{(time.perf_counter() - begin) / 60:.0f} minutes in total\n")
    write_section(_read(list(points(list(SWEEPS), options.quick)), records), README, options.quick)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=SWEEPS, action="append", help="may be repeated")
    parser.add_argument("--quick", action="store_true", help="small sizes, a few minutes")
    parser.add_argument("--again", action="store_true", help="replace records that exist")
    parser.add_argument("--failed", action="store_true", help="replace records of failures")
    parser.add_argument("--page-only", action="store_true", help="only write the section")
    parser.add_argument("--seconds", type=float, help="time limit of each point")
    return parser.parse_args()


def _measure(point: Point, path: Path, options: argparse.Namespace) -> None:
    """Measure a point in a process of its own, unless it was measured before."""
    if path.exists() and not options.again:
        is_failure = bool(json.loads(path.read_text())["failure"])
        if not (is_failure and options.failed):
            return
    path.unlink(missing_ok=True)
    limit = options.seconds or point.max_seconds
    begin = time.perf_counter()
    failure = _run_child(point, path, limit)
    record: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    record |= {"sweep": point.sweep, "value": point.value, "failure": failure}
    record |= {
        "seconds_waited": time.perf_counter() - begin,
        "ended": time.strftime("%Y-%m-%d %H:%M"),
        "num_cores": os.cpu_count(),
    }
    path.write_text(json.dumps(record, indent=1))
    sys.stdout.write(f"{point.name:28s} {record['seconds_waited']:7.1f} s  {failure}\n")
    sys.stdout.flush()


def _run_child(point: Point, path: Path, limit: float) -> str:
    """Return an empty string, or why there is no record."""
    arguments = [point.sweep, str(point.value), str(point.is_quick), str(path)]
    # not to a pipe: processes of a cluster may hold it open for longer than the child lives
    with path.with_suffix(".log").open("w") as log:
        child = subprocess.Popen(
            [sys.executable, str(FOLDER / "measure.py"), *arguments], stdout=log, stderr=log
        )
        try:
            code = child.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            _end(child)
            return f"stopped after {limit:.0f} s"
        except BaseException:
            _end(child)
            raise
    if code == 0:
        path.with_suffix(".log").unlink()
        return ""
    return _error_line(path.with_suffix(".log").read_text()) or f"ended with code {code}"


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it has started: workers of clusters have groups of their own."""
    process = psutil.Process(child.pid)
    for each in [*process.children(recursive=True), process]:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue
    child.wait()


def _error_line(output: str) -> str:
    """Return the last line that names an error."""
    lines = [line for line in output.splitlines() if "Error" in line and not line.startswith(" ")]
    return lines[-1][:300] if lines else ""


def _read(every: list[Point], records: Path) -> list[dict[str, Any]]:
    """Return the records of all points; one that was not measured yet says so."""
    result = []
    for point in every:
        path = records / f"{point.name}.json"
        missing = {"sweep": point.sweep, "value": point.value, "failure": "not measured"}
        result.append(json.loads(path.read_text()) if path.exists() else missing)
    return result


if __name__ == "__main__":
    main()
