"""The tables of RESULTS.md that compare contestants over all problems."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from records import GOAL_SD, LISTED, NUTS, OURS, SECOND, Results, Score, title
from tables import bold, capped, duration, error, listed, ratio, table

# The columns of the main table; a method that answers no problem of a table is left out of it.
MAIN_METHODS = (
    OURS,
    NUTS,
    f"{NUTS}, centred",
    "PyMC, nutpie",
    "NumPyro HMCECS",
    "BlackJAX adjusted MCLMC",
    "SVI, full",
    "SVI, diagonal",
    "Laplace",
    "SGLD",
    "NumPyro consensus",
    "Bambi",
    "lme4",
    "glmmTMB",
    "GPBoost",
    "statsmodels",
)
MAX_NAMES = 3  # names of other methods in a cell of the table of wins
Cell = tuple[str, float]  # the text and the value that it shows; not finite if it cannot be best


def main_tables(results: Results) -> list[str]:
    """Return seconds to the goal and error at the end, by problem and method.

    Hierarchical problems have other contestants, and so a table of their own.
    """
    lines = []
    for problems in families(results, results.problems):
        methods = contestants(results, problems, MAIN_METHODS)
        rows = [[label(results, name), *contest(results, name, methods)] for name in problems]
        lines += ["", *table(["problem", *map(heading, methods)], rows)]
    return lines[1:]


def families(results: Results, problems: Sequence[str]) -> list[list[str]]:
    """Separate hierarchical problems from others."""
    flat = [name for name in problems if not results.is_hierarchical(name)]
    hierarchical = [name for name in problems if results.is_hierarchical(name)]
    return [names for names in (flat, hierarchical) if names]


def contestants(results: Results, problems: Sequence[str], methods: Sequence[str]) -> list[str]:
    """Return the methods that were run on at least one of the problems, whatever came of it."""
    return [
        name
        for name in methods
        if any(_has_run(results.scores[problem].get(name)) for problem in problems)
    ]


def _has_run(score: Score | None) -> bool:
    return score is not None and not score.about.get("failure", "").startswith("not run")


def heading(method: str) -> str:
    """Return the heading of a method; ours is bold."""
    return bold(method) if method == OURS else title(method)


def contest(results: Results, problem: str, methods: Sequence[str]) -> list[str]:
    """Return seconds to the goal and error at the end of each method; the best are bold."""
    shown = [results.scores[problem].get(name) for name in methods]
    scores = [results.score(problem, OURS), *(score for _, score in results.rivals(problem))]
    times = _best_in_bold([_time(item) for item in shown], [_time(item) for item in scores])
    errors = _best_in_bold([_error(item) for item in shown], [_error(item) for item in scores])
    return [_joined(time, error) for time, error in zip(times, errors, strict=True)]


def _joined(time: str, error: str) -> str:
    if not time:
        return "–"
    return f"{time} / {error}".replace("** / **", " / ")


def label(results: Results, problem: str) -> str:
    """Name a problem with its numbers of rows and groups."""
    num_groups = results.num_groups(problem)
    groups = f", {num_groups:,} groups" if num_groups else ""
    return f"{problem}, {results.num_rows(problem):,} rows{groups}"


def _time(score: Score | None) -> Cell:
    if score is None or not _has_run(score):
        return "", np.nan
    if np.isfinite(score.to_goal):
        return duration(score.to_goal), score.to_goal
    spent = score.seconds_spent
    return (f"not in {duration(spent)}" if np.isfinite(spent) else "failed"), np.nan


def _error(score: Score | None) -> Cell:
    return ("–", np.nan) if score is None else (error(score.of("mean")), score.of("mean"))


def _best_in_bold(cells: Sequence[Cell], of_all: Sequence[Cell]) -> list[str]:
    """Return the texts; those that show the least value of all are bold."""
    known = [cell for cell in of_all if np.isfinite(cell[1])]
    best = min(known, key=lambda cell: cell[1])[0] if known else None
    return [bold(text) if text == best else text for text, _ in cells]


def by_time(results: Results, problem: str) -> list[tuple[str, float]]:
    """Return the other methods that reach the goal, the fastest first, with their seconds."""
    times = {name: score.to_goal for name, score in results.rivals(problem)}
    reached = [(name, time) for name, time in times.items() if np.isfinite(time)]
    return sorted(reached, key=lambda item: item[1])


def nuts_time(results: Results, problem: str) -> tuple[float, str]:
    """Return NUTS's seconds to the goal, or a lower bound of them and words that say so.

    On hierarchical problems it is the faster of two parametrizations.
    """
    runs = [results.scores.get(problem, {}).get(name) for name in (NUTS, f"{NUTS}, centred")]
    known = [score for score in runs if score]
    reached = [score.to_goal for score in known if np.isfinite(score.to_goal)]
    spent = [score.seconds_spent for score in known if np.isfinite(score.seconds_spent)]
    if reached:
        return min(reached), ""
    return max(spent, default=np.nan), "more than "


def times(results: Results) -> list[str]:
    """Compare seconds to the goal: of vcmc's runs, of NUTS, and of the fastest others."""
    rows = []
    for problem in results.problems:
        own = results.score(problem, OURS)
        if own is None:
            continue
        serial, least = nuts_time(results, problem)
        second, apart = (results.score(problem, name) for name in (SECOND, LISTED))
        rivals = [f"{title(name)} {duration(time)}" for name, time in by_time(results, problem)]
        faster = partial(_faster, serial, least)
        stages = apart.about if apart and np.isfinite(apart.to_goal) else {}
        rows.append(
            [
                problem,
                least + duration(serial),
                faster(own.to_goal),
                faster(second.to_goal) if second else "–",
                faster(stages.get("seconds_critical")),
                faster(stages.get("seconds_slowest")),
                *[*rivals, "–", "–"][:2],
            ]
        )
    columns = (
        "problem",
        NUTS,
        OURS,
        "second run",
        "with a machine per shard",
        "of these, slowest shard and combination",
        "fastest other",
        "next",
    )
    return table(columns, rows)


def _faster(serial: float, least: str, time: float | None) -> str:
    """Format seconds, and in brackets how many times as fast as NUTS they are."""
    if time is None or not np.isfinite(time):
        return "–"
    speedup = f" ({'> ' if least else ''}{ratio(serial / time)} ×)" if np.isfinite(serial) else ""
    return duration(time) + speedup


def wins(results: Results) -> list[str]:
    """Name the methods that are sooner or closer than vcmc, by problem."""
    measures: dict[str, tuple[Callable[[Score], float], Callable[[float], str]]] = {
        f"seconds to {GOAL_SD:g} sd": (lambda score: score.to_goal, duration),
        "means, sd": (lambda score: score.of("mean"), error),
        "sds, %": (lambda score: 100 * score.of("sd"), partial(capped, digits=1)),
        "quantiles, sd": (lambda score: score.of("quantile"), partial(capped, digits=3)),
    }
    rows = [
        [problem, *(_better(results, problem, *measure) for measure in measures.values())]
        for problem in results.problems
    ]
    unbeaten = [problem for problem, *cells in rows if not any(cells)]
    beaten = [[cell or "–" for cell in row] for row in rows if row[0] not in unbeaten]
    last = f"On {listed(unbeaten)} no other method is sooner or closer." if unbeaten else ""
    return [*table(["problem", *measures], beaten), *(["", last] if last else [])]


def _better(
    results: Results,
    problem: str,
    value: Callable[[Score], float],
    text: Callable[[float], str],
) -> str:
    """Return vcmc's value if others have a better one, and the best of these."""
    own = results.score(problem, OURS)
    limit = value(own) if own else np.nan
    limit = limit if np.isfinite(limit) else np.inf
    better = [(value(score), name) for name, score in results.rivals(problem)]
    better = sorted(item for item in better if item[0] < limit)
    names = [f"{title(name)} {text(amount)}" for amount, name in better[:MAX_NAMES]]
    if len(better) > MAX_NAMES:
        names.append(f"{len(better) - MAX_NAMES} more")
    return f"{', '.join(names)}; vcmc {text(limit)}" if names else ""
