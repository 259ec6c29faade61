"""Write benchmarks/RESULTS.md from the stored answers: a summary, then every problem in full."""

import os
import platform
from pathlib import Path
from typing import Any

import contests
import numpy as np
from contests import PROBLEM_ORDER
from methods import METHODS
from picture import draw
from scores import GOAL_SD, MIN_SETTLED_DRAWS, SETTLED_SD, Score, Scores, scores_of
from tables import capped, number, table

NUM_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
# The summary and the picture show these problems and methods: many rows, a hard shape, few rows.
SUMMARY_PROBLEMS = {
    "logistic": "logistic regression, 1,000,000 × 50",
    "mixture": "mixture of normals, 20,000 rows",
    "small": "logistic regression, 300 × 5",
}
SUMMARY_METHODS = {
    "vcmc": "**vcmc**",
    "NumPyro NUTS": "NUTS on all rows (NumPyro)",
    "PyMC, nutpie": "NUTS on all rows (PyMC, nutpie)",
    "NumPyro HMCECS": "HMCECS, subsamples of rows (NumPyro)",
    "BlackJAX adjusted MCLMC": "adjusted MCLMC on all rows (BlackJAX)",
    "SVI, full": "SVI, full covariance (NumPyro)",
    "Laplace": "Laplace approximation (NumPyro)",
    "Pathfinder": "Pathfinder (BlackJAX)",
    "SGLD": "SGLD with control variates (BlackJAX)",
    "NumPyro consensus": "consensus of shards (NumPyro)",
}

COLUMNS = (
    "method",
    "mean error, sd",
    "largest, sd",
    "sd error, %",
    "5 % and 95 % quantile error, sd",
    "seconds",
    "of these compiling",
    f"seconds to {GOAL_SD:g} sd",
    "with a machine per shard",
    "effective draws/s",
    "MB",
)


def write_page(answers: Path, path: Path) -> None:
    """Write the page and its picture."""
    scores = scores_of(answers)
    path.write_text(page(scores, (answers.parent / "notes.md").read_text()))
    write_picture(scores, path.parent / "arena" / "arena.png")


def write_picture(scores: Scores, path: Path) -> None:
    """Draw the methods of the summary on its problems."""
    panels = {
        title: {
            name: scores[problem][name]
            for name in SUMMARY_METHODS
            if name in scores[problem] and np.isfinite(scores[problem][name].mean)
        }
        for problem, title in SUMMARY_PROBLEMS.items()
        if problem in scores
    }
    if panels:
        draw(panels, path)


def page(scores: Scores, notes: str) -> str:
    """Return the page as Markdown."""
    lines = [
        "# Benchmark results",
        "",
        "Error of the posterior means, in posterior standard deviations (sd), and seconds with "
        f"compilation (vcmc's with its diagnosis), on {NUM_CORES} cores. Lower is better.",
        "",
        *_summary(scores),
        "",
        "![Error of posterior means against seconds, one panel per problem](arena/arena.png)",
        "",
        *contests.headline(scores),
        "## Time to the goal, against NUTS on all rows",
        "",
        *contests.speedups(scores),
        "## Time to the goal, against the fastest",
        "",
        *contests.best_peers(scores),
        "## Laplace on the large regressions",
        "",
        *contests.laplace(scores),
        "## Errors of other methods, relative to vcmc",
        "",
        *contests.comparisons(scores),
        notes.strip(),
        "",
        "## How it was measured",
        "",
        *_setting(scores),
    ]
    for problem in PROBLEM_ORDER:
        if problem in scores:
            lines += _section(problem, scores[problem])
    lines += _costs(scores)
    return "\n".join(lines).rstrip() + "\n"


def _summary(scores: Scores) -> list[str]:
    problems = [name for name in PROBLEM_ORDER if name in scores]
    shown = [name for name in SUMMARY_PROBLEMS if name in scores]
    rows = []
    for method, label in SUMMARY_METHODS.items():
        errors = [scores[problem][method].mean for problem in problems if method in scores[problem]]
        count = sum(error <= GOAL_SD for error in errors)
        cells = [_error_and_seconds(scores[problem].get(method)) for problem in shown]
        rows.append([label, f"{count} of {len(problems)}", *cells])
    titles = [SUMMARY_PROBLEMS[problem] for problem in shown]
    return table(["method", f"problems within {GOAL_SD:g} sd", *titles], rows)


def _error_and_seconds(score: Score | None) -> str:
    if score is None or not np.isfinite(score.mean):
        return "–"
    seconds = number(score.seconds, 0 if score.seconds >= 100 else 1)
    return f"{capped(score.mean, 3)} sd in {seconds} s"


def _setting(scores: Scores) -> list[str]:
    """Describe the machine, the versions and the procedure."""
    abouts = [score.about for of_problem in scores.values() for score in of_problem.values()]
    ends = sorted(about["ended"] for about in abouts if "ended" in about)
    minutes = sum(about.get("seconds_waited", 0.0) for about in abouts) / 60
    versions = next((about["versions"] for about in abouts if "versions" in about), [])
    return [
        f"`make bench` ran from {ends[0]} to {ends[-1]}, {minutes:.0f} minutes of computing, on "
        f"{NUM_CORES} cores ({platform.machine()}, no GPU), in double precision: "
        f"{', '.join(versions)}.",
        "",
        "Each method ran in its own process, one after the other, with a time limit and an empty "
        "cache of compiled programs. If a chain was stopped at the limit, its draws so far count. "
        f"Chains are also stopped when they have made {MIN_SETTLED_DRAWS} draws, their median "
        f"error is below {SETTLED_SD:g} sd, and it has been below {GOAL_SD:g} sd for as long as it "
        "took to get there: more draws would show nothing about the time to the goal. Errors are "
        "medians over all parameters, against importance sampling or long chains on all rows "
        "(`arena/reference.py`), whose own errors are given below each table; *largest* is the "
        "largest error of a mean. Seconds include compilation. The seconds of vcmc are those of "
        "the whole call, with its diagnosis, which other methods do not have; without it they are "
        "listed under *settings and stages*. *vcmc* chooses the number of shards and of their "
        "draws; *K as listed* is the number above each table, and *with a machine per shard* "
        "counts start, compilation, the slowest shard and the combination of that run. NumPyro's "
        "combiners get 1000 draws of each shard, as they combine the t-th draws of all shards, and "
        "the seconds of sampling them. The settings of each method are in its docstring "
        "(`arena/methods.py`).",
        "",
    ]


def _section(problem: str, scores: dict[str, Score]) -> list[str]:
    """Return one problem's table, the error of its reference, and remarks on each method."""
    about = next((score.about for score in scores.values() if "about" in score.about), {})
    names = [name for name in METHODS if name in scores]
    rows = [_row(name, scores[name]) for name in names if np.isfinite(scores[name].mean)]
    remarks = [f"- {name}: {text}." for name in names if (text := _remark(scores[name]))]
    if missing := [name for name in METHODS if name not in scores]:
        remarks.append(f"- Not run: {', '.join(missing)}.")
    return [
        f"## {problem}: {about.get('about', '')}; K = {about.get('num_shards', '?')}",
        "",
        *table(COLUMNS, rows),
        "",
        _reference(scores["reference"].about),
        "",
        "<details><summary>Settings and stages</summary>",
        "",
        *remarks,
        "",
        "</details>",
        "",
    ]


def _reference(about: dict[str, Any]) -> str:
    if "errors" not in about:
        return f"Reference: {about.get('failure', 'none')}."
    mean, sd, quantile = about["errors"]
    return (
        f"Reference: {about['origin']}, in {about['seconds']:.0f} s; it is off by {mean:.4f} sd "
        f"(means), {100 * sd:.2f} % (sds) and {quantile:.4f} sd (quantiles; medians)."
    )


def _remark(score: Score) -> str:
    texts = (score.about.get("failure"), score.about.get("remark"))
    return "; ".join(text.rstrip(".") for text in texts if text)


def _row(name: str, score: Score) -> list[str]:
    about = score.about
    return [
        name,
        capped(score.mean, 3),
        capped(score.worst, 2),
        capped(100 * score.sd, 1),
        capped(score.quantile, 3),
        number(score.seconds, 1),
        number(about.get("seconds_compile"), 1),
        number(score.to_goal, 1),
        number(about.get("seconds_critical"), 1),
        number(score.ess / score.seconds, 1),
        number(about.get("megabytes"), 0),
    ]


def _costs(scores: Scores) -> list[str]:
    """Return the seconds of vcmc and of NUTS by number of rows."""
    rows = []
    for problem, of_problem in scores.items():
        abouts = [
            of_problem[name].about if name in of_problem else {}
            for name in ("vcmc", "vcmc, K as listed", "NumPyro NUTS")
        ]
        ours, listed, serial = abouts
        if not problem.startswith("logistic") or "seconds" not in ours:
            continue
        num_rows = int(problem.partition("@")[2].partition("/")[0] or 1_000_000)
        cells = [
            str(ours["num_shards_used"]),
            number(ours["seconds"], 1),
            str(listed.get("num_shards_used", "–")),
            number(listed.get("seconds"), 1),
            number(listed.get("seconds_critical"), 1),
            number(serial.get("seconds"), 1),
            serial.get("remark", "–"),
        ]
        rows.append((num_rows, cells))
    columns = (
        "rows",
        "K chosen by vcmc",
        "vcmc, s",
        "K as listed",
        "vcmc, s",
        "with a machine per shard",
        "NumPyro NUTS, s",
        "",
    )
    return [
        "## Seconds by number of rows",
        "",
        "Logistic regression with 50 covariates.",
        "",
        *table(columns, [[f"{num_rows:,}", *cells] for num_rows, cells in sorted(rows)]),
        "",
    ]
