"""Kill processes at every stage of a run, on every executor; also those that run the cluster.

Each run must end within a limit in the same draws as an undisturbed run, to the last bit, or in
one error that says who was lost. After an error, the run is resumed from its directory, with the
same draws; a killed driver is started again. A hang, a difference or any other error is a failure.
`kill_one.py` makes one run, in a process of its own, and says how kills are triggered.

Run: .venv/bin/python benchmarks/kills.py [--only PATTERN]    (half an hour)
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
from timing import say

MAX_SECONDS = 180.0  # of a run, with the start of its cluster and its resumption
STAGES = (
    "listing",
    "start of slots",
    "checks",
    "start",
    "compile",
    "sampling",
    "optimiser round",
    "refinement",
    "diagnosis",
    "closing",
)
VICTIMS = {
    "Processes": ("process", "both processes", "driver"),
    "Dask": ("worker", "both workers", "scheduler"),
    "Ray": ("actor", "raylet"),
    "Futures": ("process",),
}
NOT_STAGES = {  # stages that an executor does not have
    "Processes": ("listing",),
    "Dask": (),
    "Ray": (),
    "Futures": ("listing", "start of slots"),
}


class Case(NamedTuple):
    """What is killed, and when."""

    executor: str
    victim: str
    stage: str

    def __str__(self) -> str:
        return f"{self.executor}, {self.victim}, {self.stage}"


class Verdict(NamedTuple):
    """How a run ended: "same draws", "error", or what is wrong; and the error."""

    end: str
    seconds: float
    error: str = ""

    @property
    def is_sound(self) -> bool:
        return self.end in ("same draws", "error")


def cases() -> Iterator[Case]:
    """Yield all cases."""
    for executor, victims in VICTIMS.items():
        for victim in victims:
            for stage in STAGES:
                # there is no actor yet when free cores are listed
                is_early = stage == "listing" and victim == "actor"
                if stage not in NOT_STAGES[executor] and not is_early:
                    yield Case(executor, victim, stage)


def run(case: Case, folder: Path) -> bool:
    """Make one run in a process of its own; return whether it ended within the limit."""
    folder.mkdir(exist_ok=True)
    script = Path(__file__).with_name("kill_one.py")
    with (folder / "output.txt").open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, str(script), *case, str(folder)], stdout=output, stderr=output
        )
        try:
            process.wait(MAX_SECONDS)
        except subprocess.TimeoutExpired:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
            process.wait(10)
            return False
    return True


def judge(case: Case, folder: Path, expected: str) -> Verdict:
    """Make one run, and compare its draws with those of an undisturbed run."""
    begin = time.monotonic()
    is_ended = run(case, folder)
    if is_ended and case.victim == "driver":
        is_ended = run(case, folder)  # it was killed, and is started again
    seconds = time.monotonic() - begin
    if not is_ended:
        return Verdict("HANG", seconds)
    if not (folder / "result.json").exists():
        lines = (folder / "output.txt").read_text().strip().splitlines()
        return Verdict("CRASH", seconds, lines[-1] if lines else "")
    result = json.loads((folder / "result.json").read_text())
    error = result["error"]
    if not result["is_killed"]:
        return Verdict("NOT KILLED", seconds, error)
    if result["digest"] != expected:
        return Verdict("OTHER DRAWS", seconds, error)
    if not error:
        return Verdict("same draws", seconds)
    is_sampled = case.stage in STAGES[STAGES.index("optimiser round") :]
    if not result["is_loss"] or (is_sampled and not result["has_draws"]):
        return Verdict("LOSS", seconds, error)
    return Verdict("error", seconds, error)


def reference(folder: Path) -> str:
    """Return the checksum of the draws of an undisturbed run."""
    if not run(Case("Local", "nobody", "never"), folder) or not (folder / "result.json").exists():
        sys.exit("the undisturbed run failed:\n" + (folder / "output.txt").read_text())
    return json.loads((folder / "result.json").read_text())["digest"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help='cases that contain this, e.g. "Dask, worker"')
    pattern = parser.parse_args().only
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory() as name:
        expected = reference(Path(name) / "reference")
        say("| executor | killed | stage | end | seconds | error |\n|---|---|---|---|---|---|")
        for number, case in enumerate(case for case in cases() if pattern in str(case)):
            verdict = judge(case, Path(name) / str(number), expected)
            verdicts.append(verdict)
            say(f"| {' | '.join(case)} | {verdict.end} | {verdict.seconds:.0f} | {verdict.error} |")
    totals = Counter(verdict.end for verdict in verdicts)
    say(f"\n{len(verdicts)} runs: " + ", ".join(f"{count} {end}" for end, count in totals.items()))
    sys.exit(not all(verdict.is_sound for verdict in verdicts))


if __name__ == "__main__":
    main()
