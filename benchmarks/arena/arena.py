"""Compare vcmc with the methods that a user would pick instead, on flat and grouped problems.

Each method runs on each problem in its own process, one after the other, with a time limit; the
draws that it had by then count. Chains that have long been right are stopped (`scores.py`). Answers
are stored in `benchmarks/arena/answers/`, so that a second run makes only those that are missing.
In the end `benchmarks/results.json`, and from it `benchmarks/RESULTS.md` and the figures of the
README (`results.py`), are written.

Run `make bench` on an idle machine: two hours or more on two cores. To run one method on one
problem, in a minute or less (the page is then left alone; --page-only writes it):

    .venv/bin/python benchmarks/arena/arena.py --problems small --methods "vcmc;NumPyro NUTS"
"""

import argparse
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from answer import Answer
    from problems import Problem

FOLDER = Path(__file__).parent
ANSWERS = FOLDER / "answers"
NUM_CORES = (
    len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
)

# Time limits in minutes. All speed-ups are relative to full-data NUTS, so it gets the longest.
REFERENCE_MINUTES = 60.0
SMALL_MINUTES = 4.0
LARGE_MINUTES = 10.0
LARGE_NUTS_MINUTES = 30.0
GROUPED_MINUTES = 5.0
SECOND_RUN = "vcmc, second run"  # right after the first, which it shares compiled programs with

PACKAGES = ("vcmc", "jax", "numpyro", "blackjax", "pymc", "nutpie", "bambi", "statsmodels")
PACKAGES += ("gpboost", "numpy")

# Methods that are timed by number of rows N and shards K, as logistic@N/K.
SWEEP = {
    "logistic@10000/20": ["vcmc", "vcmc, K as listed", "NumPyro NUTS"],
    "logistic@100000/20": ["vcmc", "vcmc, K as listed", "NumPyro NUTS"],
}


def main() -> None:
    options = _options()
    if options.child:
        _child(*options.child)
        return
    ANSWERS.mkdir(exist_ok=True)
    if not options.page_only:
        begin = time.perf_counter()
        _run_all(options)
        sys.stdout.write(f"{(time.perf_counter() - begin) / 60:.0f} minutes in total\n")
    if options.page_only or options.problems == options.methods == "all":
        from results import write_all

        write_all(ANSWERS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", default="all", help="names, separated by commas")
    parser.add_argument("--methods", default="all", help="names, separated by semicolons")
    parser.add_argument(
        "--minutes",
        type=float,
        help=f"time limit of a method; default {SMALL_MINUTES:g}, or {LARGE_MINUTES:g} for "
        f"problems with many rows ({LARGE_NUTS_MINUTES:g} for NUTS)",
    )
    parser.add_argument(
        "--again", action="store_true", help="replace answers that exist, but for references"
    )
    parser.add_argument(
        "--page-only", action="store_true", help="only write the page from the stored answers"
    )
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def _run_all(options: argparse.Namespace) -> None:
    from grouped_problems import GROUPED
    from methods import COMBINERS, SHARDS, methods_of
    from problems import PROBLEMS

    problems = (
        list(dict.fromkeys(["logistic", "probit", *SWEEP, *PROBLEMS, *GROUPED]))
        if options.problems == "all"
        else options.problems.split(",")
    )
    for problem in problems:
        methods = list(methods_of(problem))
        if options.methods != "all":
            methods = _chosen(options.methods.split(";"), methods)
        is_timed_only = problem in SWEEP and options.methods == "all"
        for method in SWEEP[problem] if is_timed_only else methods:
            if not is_timed_only:
                _run(problem, "reference", options)
            if method in COMBINERS:
                _run(problem, SHARDS, options)
            _run(problem, method, options)


def _chosen(names: list[str], methods: list[str]) -> list[str]:
    """Return the methods that are named; refuse others."""
    if unknown := [name for name in names if name not in methods]:
        raise SystemExit(
            f"--methods must name methods of the problem, {'; '.join(methods)}; got "
            f"{'; '.join(unknown)}."
        )
    return names


def _run(problem: str, method: str, options: argparse.Namespace) -> None:
    """Run one method on one problem in a process of its own, and record how it ended."""
    from answer import path_of
    from methods import SHARDS

    path = path_of(ANSWERS, problem, method)
    record_file = path.with_suffix(".json")
    is_shared = method in ("reference", SHARDS)  # by methods, and not made again for each of them
    if record_file.exists():
        has_failed = bool(json.loads(record_file.read_text()).get("failure"))
        if not (has_failed if is_shared else options.again):
            return
    for suffix in (".json", ".npz"):
        path.with_suffix(suffix).unlink(missing_ok=True)
    minutes = None if is_shared else options.minutes
    begin = time.perf_counter()
    failure = _run_child(problem, method, path, 60 * (minutes or _time_limit(problem, method)))
    seconds = time.perf_counter() - begin
    record = json.loads(record_file.read_text()) if record_file.exists() else {}
    record |= {"problem": problem, "method": method, "failure": failure}
    record |= {"seconds_waited": seconds, "ended": time.strftime("%Y-%m-%d %H:%M")}
    record_file.write_text(json.dumps(record, indent=1))
    sys.stdout.write(f"{problem:20s} {method:20s} {seconds:7.1f} s  {failure}\n")
    sys.stdout.flush()


def _run_child(problem: str, method: str, path: Path, limit: float) -> str:
    """Return an empty string, or why the child process failed."""
    # programs compiled earlier are found in this folder; it is empty but for a second run
    cache = ANSWERS / "cache" / problem.replace("/", "-")
    if method != SECOND_RUN:
        shutil.rmtree(cache, ignore_errors=True)
    elif not cache.exists():
        return "not run: the first run left no compiled programs"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")]),
        "ARENA_ANSWERS": str(ANSWERS),
        "XDG_CACHE_HOME": str(cache),
    }
    child = subprocess.Popen(
        [sys.executable, __file__, "--child", problem, method, str(path)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, stderr = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # with its own children
        child.wait()
        return f"stopped after {limit / 60:.0f} minutes"
    return "" if child.returncode == 0 else _error_line(stderr)


def _time_limit(problem: str, method: str) -> float:
    """Return the minutes after which a method is stopped."""
    from grouped_problems import GROUPED
    from problems import LARGE

    if method == "reference":
        return REFERENCE_MINUTES
    if problem.partition("@")[0] in GROUPED:
        return GROUPED_MINUTES
    if problem not in LARGE and "@" not in problem:
        return SMALL_MINUTES
    return LARGE_NUTS_MINUTES if method == "NumPyro NUTS" else LARGE_MINUTES


def _error_line(stderr: str) -> str:
    """Return the line that names the error."""
    lines = [line for line in stderr.splitlines() if "Error" in line and not line.startswith(" ")]
    return (lines or stderr.strip().splitlines() or ["?"])[-1].removeprefix("NotImplementedError: ")


def _child(name: str, method: str, path: str) -> None:
    import vcmc  # noqa: F401, I001  # first: it switches to double precision, for all methods
    from catalogue import problem_of

    problem = problem_of(name)
    if method == "reference":
        _store_reference(Path(path), problem)
        return
    from methods import SHARDS, methods_of
    from scores import is_settled, load_reference
    from shards import shard_draws

    exact = load_reference(Path(path).parent, name)
    answers = shard_draws(problem) if method == SHARDS else methods_of(name)[method](problem)
    for answer in answers:
        _store(Path(path), problem, method, answer)
        if exact is not None and is_settled(answer, exact):
            answers.close()
            break


def _store_reference(path: Path, problem: "Problem") -> None:
    """Compute and write the reference; its errors are part of the record."""
    from reference import reference

    begin = time.perf_counter()
    truth = reference(problem)
    np.savez(path.with_suffix(".npz"), **truth.summary)
    record = {
        "problem": problem.name,
        "about": problem.about,
        "num_rows": problem.num_rows,
        "num_groups": problem.num_groups,
        "num_shards": problem.num_shards,
        "seconds": time.perf_counter() - begin,
        "local": problem.local,
        "errors": truth.errors,
        "origin": truth.origin,
    }
    path.with_suffix(".json").write_text(json.dumps(record, indent=1))


def _store(path: Path, problem: "Problem", method: str, answer: "Answer") -> None:
    """Write draws and record; files are renamed when complete, as the process may be killed."""
    import vcmc

    arrays = dict(answer.draws) | ({} if answer.ready is None else {"ready!": answer.ready})
    arrays |= {f"{name}=": values for name, values in answer.summary.items()}
    if answer.draws or answer.summary:
        np.savez(path.with_suffix(".part.npz"), **arrays)
        path.with_suffix(".part.npz").replace(path.with_suffix(".npz"))
    record = {
        "problem": problem.name,
        "method": method,
        "about": problem.about,
        "num_rows": problem.num_rows,
        "num_groups": problem.num_groups,
        "num_shards": problem.num_shards,
        "num_shards_used": answer.num_shards,
        "num_chains": answer.num_chains,
        "is_skewed": problem.is_skewed,
        "local": problem.local,
        "seconds": answer.seconds,
        "seconds_compile": answer.seconds_compile,
        "seconds_critical": answer.seconds_critical,
        "seconds_slowest": answer.seconds_slowest,
        "stages": dict(answer.stages),
        "remark": answer.remark,
        "verdict": answer.verdict,
        "megabytes": max(map(_peak_memory, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))),
        "versions": _versions(),
        "vcmc": vcmc.__version__,
    }
    path.with_suffix(".part").write_text(json.dumps(record, indent=1))
    path.with_suffix(".part").replace(path.with_suffix(".json"))


def _peak_memory(who: int) -> float:
    return resource.getrusage(who).ru_maxrss / 1024


def _versions() -> list[str]:
    from importlib.metadata import PackageNotFoundError, version

    versions = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return versions


if __name__ == "__main__":
    main()
