"""Sections of RESULTS.md that compare vcmc with others: seconds to the goal, and errors."""

from collections.abc import Sequence

import numpy as np
from methods import COMBINERS, METHODS
from scores import GOAL_SD, Score, Scores
from tables import capped, number, seconds, table

PROBLEM_ORDER = ("logistic", "probit", "poisson", "robust", "mixture", "wishart", "rare", "small")
LARGE_PROBLEMS = ("logistic", "probit")
APPROXIMATIONS = ("SVI, full", "SVI, diagonal", "Laplace", "Pathfinder")
REFINED_PROBLEMS = ("rare", "small")  # the skewed posteriors, which refinement is for
MAX_TIME_RATIOS = {APPROXIMATIONS: 3.0, COMBINERS: 1.5}  # of vcmc's seconds to a peer's
OURS, LISTED = "vcmc", "vcmc, K as listed"
PEERS = tuple(name for name in METHODS if not name.startswith("vcmc"))


def headline(scores: Scores) -> list[str]:
    """State the time to the goal on most and on fewest rows."""
    lines = []
    for problem, rows in {"logistic": "a million rows", "small": "300 rows"}.items():
        own, peer = (scores.get(problem, {}).get(name) for name in ("vcmc", "NumPyro NUTS"))
        if own and peer:
            serial, least = _time_to_goal(peer)
            lines.append(
                f"On {rows} vcmc is within {GOAL_SD:g} sd after {seconds(own.to_goal)}, "
                f"NumPyro's NUTS after {least}{seconds(serial)}."
            )
    return [*lines, "See also [where others win](#where-others-win).", ""]


def _time_to_goal(score: Score) -> tuple[float, str]:
    """Return the seconds to the goal, or a lower bound of them and words that say so."""
    if np.isfinite(score.to_goal):
        return score.to_goal, ""
    return score.about.get("seconds_waited", score.seconds), "more than "


def best_peers(scores: Scores) -> list[str]:
    """Compare vcmc's seconds to the goal with those of the fastest other method."""
    rows = []
    for problem in PROBLEM_ORDER:
        of_problem = scores.get(problem, {})
        peers = {
            name: of_problem[name].to_goal
            for name in PEERS
            if name in of_problem and np.isfinite(of_problem[name].to_goal)
        }
        if OURS not in of_problem or not peers:
            continue
        ours = of_problem[OURS].to_goal
        second = of_problem.get("vcmc, second run")
        best, next_best = [*sorted(peers, key=peers.__getitem__), ""][:2]
        rows.append(
            [
                problem,
                number(ours, 1),
                number(second.to_goal if second else None, 1),
                f"{best}, {peers[best]:.1f}",
                f"{next_best}, {peers[next_best]:.1f}" if next_best else "–",
                number(ours / peers[best], 2),
            ]
        )
    columns = (
        "problem",
        "vcmc, s",
        "second run, s",
        "fastest other, s",
        "next, s",
        "vcmc / fastest other",
    )
    return [
        f"Seconds after which the median error of means stays below {GOAL_SD:g} sd, with "
        "compilation and with vcmc's diagnosis. In a second run, vcmc finds its compiled programs "
        "in the user's cache folder.",
        "",
        *table(columns, rows),
        "",
    ]


def laplace(scores: Scores) -> list[str]:
    """Set vcmc and the Laplace approximation side by side, where it is at its best."""
    rows = []
    for problem in LARGE_PROBLEMS:
        of_problem = scores.get(problem, {})
        names = [name for name in (OURS, LISTED, "Laplace") if name in of_problem]
        if "Laplace" not in names or OURS not in names:
            continue
        for name in names:
            score = of_problem[name]
            total = number(score.seconds, 1)
            rows.append([problem, name, total, *_errors((score.mean, score.sd, score.quantile))])
        errors = of_problem["reference"].about["errors"]
        rows.append([problem, "the reference's own error", "", *_errors(errors)])
    columns = ("problem", "method", "seconds in all", "mean, sd", "sd, %", "quantiles, sd")
    return [
        "On the two large regressions the posterior is so nearly Gaussian that a Laplace "
        "approximation is hard to beat. It has no diagnosis; vcmc's is included in its seconds.",
        "",
        *table(columns, rows),
        "",
    ]


def _errors(errors: Sequence[float]) -> list[str]:
    mean, sd, quantile = errors
    return [number(mean, 4), number(100 * sd, 2), number(quantile, 4)]


def speedups(scores: Scores) -> list[str]:
    """Compare the seconds after which the median error of means stays below the goal."""
    rows = []
    for problem in ("logistic", "probit", "small"):
        own, peer = (scores.get(problem, {}).get(name) for name in ("vcmc", "NumPyro NUTS"))
        if own is None or peer is None:
            continue
        serial, least = _time_to_goal(peer)
        listed = scores[problem].get(LISTED)
        apart = [None, None]
        if problem != "small" and listed:
            apart = [listed.about["seconds_critical"], listed.about["seconds_slowest"]]
        cells = [_speedup(serial, least, time) for time in (own.to_goal, *apart)]
        rows.append([problem, least + seconds(serial), *cells])
    columns = (
        "problem",
        "NumPyro NUTS",
        "vcmc on this machine",
        "K as listed, with a machine per shard",
        "of these, slowest shard and combination",
    )
    return [*table(columns, rows), ""]


def _speedup(serial: float, least: str, time: float | None) -> str:
    if time is None:
        return "–"
    ratio = serial / time
    return f"{time:.1f} s, speed-up {least}{number(ratio, 1 if ratio < 10 else 0)}"


def comparisons(scores: Scores) -> list[str]:
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
