"""Write RESULTS.md, its picture and the README's figures from `benchmarks/results.json`.

The JSON file is made from the stored answers by `arena.py`. To write the rest again, or to check
that what is committed agrees with it (exit code 1 if not):

    .venv/bin/python benchmarks/arena/results.py
    .venv/bin/python benchmarks/arena/results.py --check
"""

import argparse
import os
import platform
import sys
from pathlib import Path
from typing import Any

import contests
import details
import readme
from picture import draw
from records import GOAL_SD, MIN_SETTLED_DRAWS, REFERENCE, SETTLED_SD, Results, Scores, read, write
from verdict import verdict

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
# The picture has a panel for each of these problems: many rows, a hard shape, few rows, groups.
PICTURE_PROBLEMS = ("logistic", "mixture", "small", "planes")
PICTURE = "benchmarks/arena/arena.png"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="only compare with the files")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of the README")
    options = parser.parse_args()
    results = read(options.root / "benchmarks" / "results.json")
    documents = rewritten(results, options.root)
    if options.check:
        stale = [path for path, text in documents.items() if path.read_text() != text]
        names = ", ".join(str(path.relative_to(options.root)) for path in stale)
        sys.exit(f"not what results.json says: {names}. Try: results.py" if stale else 0)
    write_documents(results, options.root)


def write_all(answers: Path, root: Path = ROOT) -> None:
    """Score the stored answers; write the JSON file and all that is made from it."""
    from methods import METHODS, SHARDS
    from scores import scores_of

    path = root / "benchmarks" / "results.json"
    part = answers / "results.part"
    write(_of_run(scores_of(answers), [REFERENCE, *METHODS], SHARDS), part)
    write_documents(read(part), root)
    path.write_text(part.read_text())


def write_documents(results: Results, root: Path) -> None:
    """Write the page, the picture and the README's figures."""
    for path, text in rewritten(results, root).items():
        path.write_text(text)
    problems = [name for name in PICTURE_PROBLEMS if name in results.problems]
    draw(results, problems, contests.MAIN_METHODS, root / PICTURE)


def rewritten(results: Results, root: Path) -> dict[Path, str]:
    """Return all documents that have figures of the run, as they should be."""
    notes = (root / "benchmarks" / "arena" / "notes.md").read_text()
    documents = {root / "benchmarks" / "RESULTS.md": page(results, notes)}
    for path in (root / "README.md", root / "benchmarks" / "README.md"):
        documents[path] = readme.renewed(path.read_text(), results)
    return documents


def _of_run(scores: Scores, order: list[str], hidden: str) -> Results:
    """Order the scores as methods are listed, others after them, and describe the run."""
    abouts = [score.about for of_problem in scores.values() for score in of_problem.values()]
    ends = sorted(about["ended"] for about in abouts if "ended" in about)
    ranks = {name: rank for rank, name in enumerate(order)}
    known = {
        problem: {
            name: of_problem[name]
            for name in sorted(of_problem, key=lambda name: (ranks.get(name, len(order)), name))
            if name != hidden
        }
        for problem, of_problem in scores.items()
    }
    setting = {
        "began": ends[0],
        "ended": ends[-1],
        "minutes": round(sum(about.get("seconds_waited", 0.0) for about in abouts) / 60),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "machine": platform.machine(),
        "versions": next((about["versions"] for about in abouts if "versions" in about), []),
    }
    return Results(known, setting)


def page(results: Results, notes: str) -> str:
    """Return the page as Markdown; the notes are the text of two of its sections."""
    on_wins, on_stages = notes.split("\n---\n")
    lines = [
        "# Benchmark results",
        "",
        *verdict(results),
        "",
        f"Each cell: seconds until the median error of the posterior means stays below {GOAL_SD:g} "
        "posterior standard deviations (sd), with compilation and vcmc's with its diagnosis / that "
        "error at the end. The best of all methods, those included that only the details have, are "
        f"in bold. {results.setting['cores']} cores, {results.setting['ended'][:10]}.",
        "",
        *contests.main_tables(results),
        "",
        f"![Seconds to {GOAL_SD:g} sd of each method, one panel per problem](arena/arena.png)",
        "",
        "## Where others win",
        "",
        "Methods that are sooner, or closer at the end, than vcmc as it comes (medians over all "
        "parameters). Differences below the error of the reference, in the details, mean nothing.",
        "",
        *contests.wins(results),
        "",
        on_wins.strip(),
        "",
        "## Time to the goal",
        "",
        f"Seconds to {GOAL_SD:g} sd; in brackets, how many times as fast as NumPyro's NUTS on all "
        "rows. In a second run, vcmc finds its compiled programs in the user's cache folder.",
        "",
        *contests.times(results),
        "",
        "## Where the time goes",
        "",
        *details.stages(results),
        "",
        on_stages.strip(),
        "",
        "Logistic regression with 50 covariates, seconds in all:",
        "",
        *details.by_rows(results),
        "",
        "## How it was measured",
        "",
        *_setting(results.setting),
        "",
        "## Every problem",
        "",
    ]
    for problem in results.problems:
        lines += details.section(results, problem)
    return "\n".join(lines).rstrip() + "\n"


def _setting(setting: dict[str, Any]) -> list[str]:
    """Describe the machine, the versions and the procedure."""
    note = [setting["note"], ""] if "note" in setting else []
    return [
        f"`make bench` ran from {setting['began']} to {setting['ended']}, {setting['minutes']} "
        f"minutes of computing, on {setting['cores']} cores ({setting['machine']}, no GPU), in "
        f"double precision: {', '.join(setting['versions'])}.",
        "",
        *note,
        "Each method ran in its own process, one after the other, with a time limit and an empty "
        "cache of compiled programs. If a chain was stopped at the limit, its draws so far count. "
        f"Chains are also stopped when they have made {MIN_SETTLED_DRAWS} draws, their median "
        f"error is below {SETTLED_SD:g} sd, and it has been below {GOAL_SD:g} sd for as long as it "
        "took to get there: more draws would show nothing about the time to the goal. All JAX "
        "chains are one program each that calls back after every block of draws "
        "(`arena/polling.py`). Errors are medians over all parameters, against importance sampling "
        "or long chains on all rows (`arena/reference.py`), whose own errors are given below each "
        "table; *largest* is the largest over all parameters. Globals and locals of hierarchical "
        "problems count apart, and the larger of their two errors is the one in the tables above.",
        "",
        "The seconds of vcmc are those of the whole call, with its diagnosis, which other methods "
        "do not have. *vcmc* chooses the number of shards and of their draws; *K as listed* is the "
        "number above each table, and *with a machine per shard* counts start, compilation, the "
        "slowest shard and the combination of that run. NumPyro's combiners get 1000 draws of each "
        "shard, as they combine the t-th draws of all shards, and the seconds of sampling them. "
        "The settings of each method are in its docstring (`arena/methods.py`).",
    ]


if __name__ == "__main__":
    main()
