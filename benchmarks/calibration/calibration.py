"""Measure how often vcmc's verdict is wrong: false alarms, and results wrongly called good.

Sound runs: five models, 4 and 20 shards, 20 data sets each. Vcmc is right on them, which is checked
for every run, so that nearly all should be called good. Faults: 14 kinds of planted faults, 16 runs
each, with a known posterior. Only results that really are wrong count (a mean by more than 0.2
posterior sds, or an sd by more than 15 %); others are replaced by the next seed, and shown. Nearly
none should be called good. A run that ends in an exception is shown as an error: in a sound run it
is a false alarm; in a fault it misleads nobody, and is not counted.

Run (about ten minutes on two cores; --quick: about two):

    .venv/bin/python benchmarks/calibration/calibration.py [--quick] [--kinds dose,logistic] \
        [--refine] [--verbose] [--out runs.csv]
"""

import argparse
import csv
import gc
import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from case import Run, run_case
from faults import FAULTS
from scipy.stats import beta
from sound import NUM_ROWS, NUM_SHARDS, SOUND

NUM_SOUND, NUM_FAULTS = 20, 16  # runs by model and number of shards; by kind of fault
QUICK_SHARE = 0.1
MAX_TRIES = 2  # seeds per run, where results turn out not to be wrong
LEVELS = ("good", "doubtful", "poor", "unknown", "error")
COLUMNS = ("runs", "right", "wrong", *LEVELS, "wrong and good", "mean off", "sd off", "s")


def main() -> None:
    options = _options()
    share = QUICK_SHARE if options.quick else 1.0
    num_sound, num_faults = round(share * NUM_SOUND), round(share * NUM_FAULTS)
    runs: list[Run] = []
    for kind in options.kinds:
        if kind in SOUND:
            found = _sound_runs(kind, options.seeds or num_sound, options)
        else:
            found = _fault_runs(kind, options.seeds or num_faults, options)
        for run in found:
            runs.append(run)
            if options.verbose:
                _say(_line(run))
            if options.out:
                _write(runs, options.out)
        gc.collect()
    _report(runs)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument("--seeds", type=int, help="runs of each kind, in place of 20 and 16")
    parser.add_argument(
        "--first-seed", type=int, default=0, help="first seed: others than 0 give other data"
    )
    parser.add_argument(
        "--kinds", default="sound,faults", help="models and kinds of faults, or sound, or faults"
    )
    parser.add_argument(
        "--rows", type=int, default=NUM_ROWS, help="rows of the sound models; fewer are harder"
    )
    parser.add_argument("--refine", action="store_true", help="refine every result")
    parser.add_argument("--verbose", action="store_true", help="a line for every run")
    parser.add_argument("--out", type=Path, help="a .csv or .json file of all runs")
    options = parser.parse_args()
    groups = {"sound": list(SOUND), "faults": list(FAULTS)}
    options.kinds = [kind for name in options.kinds.split(",") for kind in groups.get(name, [name])]
    if unknown := sorted(set(options.kinds) - set(SOUND) - set(FAULTS)):
        parser.error(f"--kinds must be among {', '.join([*SOUND, *FAULTS])}; got {unknown}.")
    return options


def _sound_runs(model: str, num_runs: int, options: argparse.Namespace) -> Iterator[Run]:
    """Run a model on data sets that differ, for every number of shards."""
    for num_shards in NUM_SHARDS:
        for number in range(num_runs):
            seed = 10**6 * num_shards + options.first_seed + number
            case = SOUND[model](seed, num_shards, options.rows)
            yield run_case(case, "sound", f"{model}, K = {num_shards}", seed, options.refine)


def _fault_runs(kind: str, num_runs: int, options: argparse.Namespace) -> Iterator[Run]:
    """Run a kind of fault until so many results are wrong, or errors; give up in the end."""
    num_counted = 0
    for seed in range(options.first_seed, options.first_seed + MAX_TRIES * num_runs):
        run = run_case(FAULTS[kind](seed), "fault", kind, seed, options.refine)
        yield run
        num_counted += run.is_wrong or run.verdict == "error"
        if num_counted == num_runs:
            return


def _report(runs: list[Run]) -> None:
    """Print a table by kind, what went wrong, and the two rates."""
    _say()
    _say(f"| | {' | '.join(COLUMNS)} |")
    _say("|---" * (len(COLUMNS) + 1) + "|")
    for kind in dict.fromkeys(run.kind for run in runs):
        _say(_table_row(kind, [run for run in runs if run.kind == kind]))
    alarms = [run for run in runs if _is_false_alarm(run)]
    missed = [
        run for run in runs if run.group == "fault" and run.is_wrong and run.verdict == "good"
    ]
    errors = [run for run in runs if run.verdict == "error"]
    for title, chosen in (
        ("Sound and not wrong, but not called good", alarms),
        ("Wrong, but called good", missed),
        ("Errors", errors),
    ):
        if chosen:
            _say(f"\n{title}:")
            for run in chosen:
                _say(_line(run))
    sound = [run for run in runs if run.group == "sound" and _counts_as_sound(run)]
    wrong = [run for run in runs if run.group == "fault" and run.is_wrong]
    _say()
    _say(_rate("sound runs not called good", len(alarms), len(sound)))
    _say(_rate("wrong results of planted faults called good", len(missed), len(wrong)))


def _counts_as_sound(run: Run) -> bool:
    """Whether a sound run should be called good; an exception in one is a false alarm."""
    return not run.is_wrong


def _is_false_alarm(run: Run) -> bool:
    return run.group == "sound" and _counts_as_sound(run) and run.verdict != "good"


def _table_row(kind: str, runs: list[Run]) -> str:
    count = [sum(run.verdict == level for run in runs) for level in LEVELS]
    cells = [
        kind,
        len(runs),
        sum(run.is_right for run in runs),
        sum(run.is_wrong for run in runs),
        *count,
        sum(run.is_wrong and run.verdict == "good" for run in runs),
        f"{_median([run.mean_error for run in runs]):.2f}",
        f"{100 * _median([run.sd_error for run in runs]):.0f} %",
        f"{_median([run.seconds for run in runs]):.1f}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _median(values: list[float]) -> float:
    known = [value for value in values if value == value]
    return statistics.median(known) if known else float("nan")


def _rate(title: str, count: int, total: int) -> str:
    """Return a rate with its exact 95 % interval (Clopper and Pearson 1934)."""
    if not total:
        return f"{title}: no such runs."
    low = beta.ppf(0.025, count, total - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, total - count) if count < total else 1.0
    share = f"{100 * count / total:.1f} % (95 % interval {100 * low:.1f} to {100 * high:.1f} %)"
    return f"{title}: {count} of {total}, {share}"


def _line(run: Run) -> str:
    state = "wrong" if run.is_wrong else "right" if run.is_right else "between"
    if run.verdict == "error":
        state = "no result"
    return (
        f"{run.kind} {run.seed}: {run.verdict}, {state} (mean off by {run.mean_error:.2f} sd, "
        f"sd by {100 * run.sd_error:.0f} %), {run.seconds:.1f} s. {run.reason}"
    )


def _write(runs: list[Run], path: Path) -> None:
    rows = [asdict(run) | {"is_right": run.is_right, "is_wrong": run.is_wrong} for run in runs]
    if path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=1))
        return
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _say(line: str = "") -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
