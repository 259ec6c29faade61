"""Write benchmarks/RESULTS.md from the stored answers: a summary, then every problem in full."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from methods import METHODS
from picture import draw
from scores import GOAL_SD, Score, Scores, scores_of

NUM_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
CAP = 100.0  # larger errors and ratios are printed as "> 100": beyond use, however large
PROBLEM_ORDER = ("logistic", "probit", "poisson", "robust", "mixture", "wishart", "rare", "small")

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
    "SVI, full": "SVI, full covariance (NumPyro)",
    "Laplace": "Laplace approximation (NumPyro)",
    "Pathfinder": "Pathfinder (BlackJAX)",
    "SGLD": "SGLD with control variates (BlackJAX)",
    "NumPyro consensus": "consensus of shards (NumPyro)",
}
APPROXIMATIONS = ("SVI, full", "SVI, diagonal", "Laplace", "Pathfinder")
COMBINERS = tuple(name for name in METHODS if name.startswith(("NumPyro c", "NumPyro p")))
REFINED_PROBLEMS = ("rare", "small")  # the skewed posteriors, which refinement is for
MAX_TIME_RATIOS = {APPROXIMATIONS: 3.0, COMBINERS: 1.5}  # of vcmc's seconds to a peer's

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
        title: {name: scores[problem][name] for name in SUMMARY_METHODS if name in scores[problem]}
        for problem, title in SUMMARY_PROBLEMS.items()
        if problem in scores
    }
    draw(panels, path)


def page(scores: Scores, notes: str) -> str:
    """Return the page as Markdown."""
    lines = [
        "# Benchmark results",
        "",
        "Error of the posterior means, in posterior standard deviations (sd), and seconds with "
        f"compilation (vcmc: without its error estimate), on {NUM_CORES} cores. Lower is better.",
        "",
        *_summary(scores),
        "",
        "![Error of posterior means against seconds, one panel per problem](arena/arena.png)",
        "",
        *_headline(scores),
        "## Time to the goal, against NUTS on all rows",
        "",
        *_speedups(scores),
        "## Errors of other methods, relative to vcmc",
        "",
        *_comparisons(scores),
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


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]


def number(value: float | None, digits: int) -> str:
    """Format a number; a dash if there is none."""
    if value is None or not np.isfinite(value):
        return "–"
    return f"{value:.{digits}f}"


def capped(value: float | None, digits: int) -> str:
    """Format an error or a ratio; beyond the cap its size says nothing."""
    return f"> {CAP:g}" if value is not None and value > CAP else number(value, digits)


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


def _headline(scores: Scores) -> list[str]:
    """State the time to the goal on most and on fewest rows."""
    lines = []
    for problem, rows in {"logistic": "a million rows", "small": "300 rows"}.items():
        own, peer = (scores.get(problem, {}).get(name) for name in ("vcmc", "NumPyro NUTS"))
        if own and peer:
            serial, least = _time_to_goal(peer)
            lines.append(
                f"On {rows} vcmc is within {GOAL_SD:g} sd after {_seconds(own.to_goal)}, "
                f"NumPyro's NUTS after {least}{_seconds(serial)}."
            )
    return [*lines, "See also [where others win](#where-others-win).", ""]


def _seconds(value: float) -> str:
    return f"{value:.{0 if value >= 10 else 1}f} s"


def _time_to_goal(score: Score) -> tuple[float, str]:
    """Return the seconds to the goal, or a lower bound of them and words that say so."""
    if np.isfinite(score.to_goal):
        return score.to_goal, ""
    return score.about.get("seconds_waited", score.seconds), "more than "


def _speedups(scores: Scores) -> list[str]:
    """Compare the seconds after which the median error of means stays below the goal."""
    rows = []
    for problem in ("logistic", "probit", "small"):
        own, peer = (scores.get(problem, {}).get(name) for name in ("vcmc", "NumPyro NUTS"))
        if own is None or peer is None:
            continue
        serial, least = _time_to_goal(peer)
        seconds = {"here": own.to_goal}
        if problem != "small":
            seconds["apart"] = own.about["seconds_critical"]
            seconds["slowest"] = own.about["seconds_slowest"]
        cells = [_speedup(serial, least, seconds.get(key)) for key in ("here", "apart", "slowest")]
        rows.append([problem, least + _seconds(serial), *cells])
    columns = (
        "problem",
        "NumPyro NUTS",
        f"vcmc on {NUM_CORES} cores",
        "with a machine per shard",
        "of these, slowest shard and combination",
    )
    return [*table(columns, rows), ""]


def _speedup(serial: float, least: str, seconds: float | None) -> str:
    if seconds is None:
        return "–"
    ratio = serial / seconds
    return f"{seconds:.1f} s, speed-up {least}{number(ratio, 1 if ratio < 10 else 0)}"


def _comparisons(scores: Scores) -> list[str]:
    problems = [name for name in PROBLEM_ORDER if name in scores]
    refined = [name for name in REFINED_PROBLEMS if name in scores]
    peers = (*APPROXIMATIONS, *COMBINERS)
    lines = [
        "Errors of means / sds / quantiles, each divided by vcmc's. Above 1 vcmc is closer; "
        "**below 1** the other is.",
        "",
        *table(["method", *problems], _ratio_rows(scores, "vcmc", peers, problems)),
        "",
    ]
    for group, limit in MAX_TIME_RATIOS.items():
        peers = "the approximations" if group == APPROXIMATIONS else "NumPyro's combiners"
        slower = ", ".join(_slower(scores, group, limit))
        lines.append(
            f"vcmc takes at most {limit:g} times as long as {peers}"
            + (f", except for {slower}." if slower else ", on all problems.")
        )
    return [
        *lines,
        "",
        "The same for `vcmc, refined`, on the two skewed posteriors:",
        "",
        *table(["method", *refined], _ratio_rows(scores, "vcmc, refined", APPROXIMATIONS, refined)),
        "",
    ]


def _ratio_rows(
    scores: Scores, own: str, peers: Sequence[str], problems: Sequence[str]
) -> list[list[str]]:
    rows = []
    for peer in peers:
        cells = [error_ratios(scores[problem], own, peer) for problem in problems]
        rows.append([peer, *(" / ".join(map(_ratio, cell)) or "–" for cell in cells)])
    return rows


def _ratio(value: float) -> str:
    text = capped(value, 1)
    return f"**{text}**" if not text.startswith(">") and float(text) < 1 else text


def error_ratios(scores: dict[str, Score], own: str, peer: str) -> list[float]:
    """Return a peer's errors of means, sds and quantiles over our own; none if one did not run."""
    if own not in scores or peer not in scores:
        return []
    ours, theirs = scores[own], scores[peer]
    if not np.isfinite(ours.mean + theirs.mean):
        return []
    return [
        theirs.mean / ours.mean,
        theirs.sd / ours.sd,
        theirs.quantile / ours.quantile,
    ]


def _slower(scores: Scores, peers: Sequence[str], limit: float) -> list[str]:
    """Name the problems on which vcmc takes too many times as long as a peer."""
    return [
        f"{peer} on {problem} ({ours.seconds / theirs.seconds:.1f})"
        for problem in PROBLEM_ORDER
        for peer in peers
        if (ours := scores.get(problem, {}).get("vcmc"))
        and (theirs := scores[problem].get(peer))
        and np.isfinite(theirs.mean)
        and ours.seconds > limit * theirs.seconds
    ]


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
        "Each method ran in its own process, one after the other, with a time limit; if a chain "
        "was stopped at the limit, its draws so far count. Errors are medians over all "
        "parameters, against long chains on all rows (`arena/reference.py`), whose own error is "
        "given below each table; *largest* is the largest error of a mean. Seconds include "
        "compilation. The seconds of vcmc end with its draws: they leave out its diagnosis, which "
        "the other methods do not have and which is listed under *settings and stages*. *With a "
        "machine per shard* counts start, compilation, the slowest shard and the combination. The "
        "settings of each method are in its docstring "
        "(`arena/methods.py`).",
        "",
    ]


def _section(problem: str, scores: dict[str, Score]) -> list[str]:
    """Return one problem's table, the error of its reference, and remarks on each method."""
    exact = scores["reference"]
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
        f"Reference: {exact.ess:.0f} effective draws in {exact.seconds:.0f} s; "
        f"its means are off by {0.67 / np.sqrt(exact.ess):.3f} sd (median).",  # of |N(0, 1)|: 0.67
        "",
        "<details><summary>Settings and stages</summary>",
        "",
        *remarks,
        "",
        "</details>",
        "",
    ]


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
    """Return the seconds of vcmc and of NUTS by number of rows and shards."""
    rows = []
    for problem, of_problem in scores.items():
        ours = of_problem["vcmc, 100 draws"].about if "vcmc, 100 draws" in of_problem else {}
        if not problem.startswith("logistic") or "seconds" not in ours:
            continue
        num_rows = int(problem.partition("@")[2].partition("/")[0] or 1_000_000)
        serial = of_problem["NumPyro NUTS"].about if "NumPyro NUTS" in of_problem else {}
        keys = ("seconds", "seconds_compile", "seconds_critical")
        cells = [*(number(ours[key], 1) for key in keys), number(serial.get("seconds"), 1)]
        rows.append((num_rows, ours["num_shards"], *cells, serial.get("remark", "–")))
    columns = (
        "rows",
        "shards",
        "vcmc, s",
        "of these compiling",
        "with a machine per shard",
        "NumPyro NUTS, s",
        "",
    )
    return [
        "## Seconds by number of rows and shards",
        "",
        "Logistic regression with 50 covariates; vcmc with 100 draws per shard.",
        "",
        *table(columns, [[f"{row[0]:,}", str(row[1]), *row[2:]] for row in sorted(rows)]),
        "",
    ]
