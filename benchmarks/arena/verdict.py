"""The verdict that opens RESULTS.md: five sentences, all computed from the scores."""

import numpy as np
from contests import by_time, nuts_time
from records import GOAL_SD, NUTS, OURS, Results, Score, is_ours, title
from tables import count, duration, error, listed, ratio

MANY_ROWS = 20_000  # from here on vcmc should be the first, or nearly so
MANY_GROUPS, GROUPS_FACTOR = 2_000, 3.0  # from here on it should be the first by this factor
LEVEL = 1.2  # times the seconds of the first that count as level with it
MEAN_LIMIT, SD_LIMIT = 0.2, 0.15  # errors from which on a result must not be called good


def verdict(results: Results) -> list[str]:
    """Return a numbered list of five sentences."""
    sentences = (
        _speed(results),
        _nuts(results),
        _errors(results),
        _calls(results),
        _losses(results),
    )
    return [f"{place}. {sentence}" for place, sentence in enumerate(sentences, start=1)]


def place(results: Results, problem: str) -> float:
    """Return vcmc's seconds to the goal over those of the fastest other method."""
    own = results.score(problem, OURS)
    rivals = by_time(results, problem)
    if own is None or not np.isfinite(own.to_goal):
        return np.inf
    return own.to_goal / rivals[0][1] if rivals else 0.0


def _speed(results: Results) -> str:
    problems = [
        name
        for name in results.problems
        if results.num_rows(name) >= MANY_ROWS and not results.is_hierarchical(name)
    ]
    behind = [name for name in problems if place(results, name) > LEVEL]
    text = (
        f"**Speed.** vcmc as it comes is the first to know the posterior means to {GOAL_SD:g} sd, "
        f"or within {LEVEL:g} times the first, on {len(problems) - len(behind)} of "
        f"{len(problems)} problems with {MANY_ROWS:,} rows or more"
        + (f"; not on {listed([_behind(results, name) for name in behind])}." if behind else ".")
    )
    return text + _groups(results)


def _groups(results: Results) -> str:
    """Say by which factor vcmc is the first on hierarchical problems."""
    problems = [name for name in results.problems if results.num_groups(name) >= MANY_GROUPS]
    if not problems:
        return ""
    factors = {name: np.divide(1, place(results, name)) for name in problems}
    ahead = sum(factor >= GROUPS_FACTOR for factor in factors.values())
    texts = [
        f"{name} {ratio(factor) if np.isfinite(factor) else 'no other'}"
        for name, factor in factors.items()
    ]
    return (
        f" With {MANY_GROUPS:,} groups or more it is the first by a factor of {GROUPS_FACTOR:g} on "
        f"{ahead} of {len(problems)} (seconds of the fastest other over its own: "
        f"{', '.join(texts)})."
    )


def _behind(results: Results, problem: str) -> str:
    factor = place(results, problem)
    return f"{problem} ({ratio(factor) + ' times' if np.isfinite(factor) else 'never'})"


def _against_first(results: Results, problem: str) -> str:
    """Set the seconds of the fastest other method against vcmc's."""
    own, (first, time) = results.score(problem, OURS), by_time(results, problem)[0]
    ours = f"{duration(own.to_goal)} s" if own and np.isfinite(own.to_goal) else "never"
    return f"{problem} ({title(first)} {duration(time)}, vcmc {ours})"


def _nuts(results: Results) -> str:
    factors: dict[str, tuple[float, str]] = {}
    for name in results.problems:
        own, (serial, least) = results.score(name, OURS), nuts_time(results, name)
        if own and np.isfinite(serial):
            factors[name] = (serial / np.nan_to_num(own.to_goal, nan=np.inf), least)
    if not factors:
        return f"**Against NUTS.** {NUTS} was not run."
    best, worst = max(factors, key=factors.__getitem__), min(factors, key=factors.__getitem__)
    sooner = sum(factor > 1 for factor, _ in factors.values())
    return (
        f"**Against NUTS** on all rows ({NUTS}), to the same goal, vcmc is sooner on {sooner} of "
        f"{len(factors)} problems, at best {_times(*factors[best])} as fast ({best}), at worst "
        f"{_times(*factors[worst])} ({worst})."
    )


def _times(factor: float, least: str) -> str:
    return f"{least}{ratio(factor)} times"


def _errors(results: Results) -> str:
    scores = {name: score for name in results.problems if (score := results.score(name, OURS))}
    missed = [name for name in results.problems if name not in scores]
    closest = sum(
        all(score.of("mean") <= rival.of("mean") for _, rival in results.rivals(name))
        for name, score in scores.items()
    )
    furthest = max(scores, key=lambda name: scores[name].of("mean"))
    largest = error(scores[furthest].of("mean"))
    return (
        f"**Error at the end.** The median error of vcmc's means is at most {largest} sd "
        f"({furthest}), and the least of all contestants' on {closest} of {len(scores)} problems."
        + (f" It has no result on {listed(missed)}." if missed else "")
    )


def _calls(results: Results) -> str:
    """Hold what vcmc says of its results against what they are."""
    runs = {
        f"{problem}, {title(method)}": score
        for problem in results.problems
        for method in results.methods
        if is_ours(method) and (score := results.score(problem, method))
    }
    said = {
        word: [name for name, score in runs.items() if score.about.get("verdict") == word]
        for word in ("good", "doubtful", "poor")
    }
    missed = [name for name in said["good"] if is_wrong(runs[name])]
    alarms = [name for name in said["poor"] if not is_wrong(runs[name])]
    good, doubtful, poor = (len(names) for names in said.values())
    unsaid = len(runs) - good - doubtful - poor
    silent = f" ({unsaid} without a verdict)" if unsaid else ""
    return (
        f"**Its own verdict.** Of {len(runs)} runs of vcmc, {good} call their result good, "
        f"{doubtful} doubtful and {poor} poor{silent}. Off by {MEAN_LIMIT:g} sd in a mean or "
        f"{100 * SD_LIMIT:g} % in an sd and called good: "
        f"{listed(missed) if missed else 'none'}. Right and called poor: "
        f"{listed(alarms) if alarms else 'none'}." + _unrecorded(list(runs.values()))
    )


def is_wrong(score: Score) -> bool:
    """Return whether a mean or an sd is off by so much that nobody should call it good."""
    sd = score.of("worst_sd")
    return score.of("worst") >= MEAN_LIMIT or (sd if np.isfinite(sd) else score.sd) >= SD_LIMIT


def _unrecorded(runs: list[Score]) -> str:
    """Say that largest errors of sds are not known, where they are not."""
    if all(np.isfinite(score.worst_sd) for score in runs):
        return ""
    largest = max(score.sd for score in runs if not np.isfinite(score.worst_sd))
    return (
        " (Of sds, this run recorded median errors, not the largest; they are at most "
        f"{100 * largest:.1f} %.)"
    )


def _losses(results: Results) -> str:
    behind = [
        name for name in results.problems if place(results, name) > 1 and by_time(results, name)
    ]
    if not behind:
        return "**Others win** on no problem in seconds; [some are closer](#where-others-win)."
    return (
        f"**Others are sooner** on {count(len(behind))} of {count(len(results.problems))}: "
        f"{listed([_against_first(results, name) for name in behind])}. "
        "See [where others win](#where-others-win)."
    )
