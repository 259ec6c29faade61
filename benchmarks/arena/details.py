"""The details of RESULTS.md: each problem in full, seconds by stage and by number of rows."""

from typing import Any

from records import GOAL_SD, LISTED, NUTS, OURS, REFERENCE, Results, Score, title
from tables import capped, duration, error, number, table

COLUMNS = (
    "method",
    "mean error, sd",
    "largest, sd",
    "sd error, %",
    "largest, %",
    "5 % and 95 % quantile error, sd",
    "locals: mean error, sd",
    "largest, sd",
    "sd error, %",
    "largest, %",
    "quantile error, sd",
    "seconds",
    "of these compiling",
    f"seconds to {GOAL_SD:g} sd",
    "with a machine per shard",
    "effective draws/s",
    "MB",
)


def section(results: Results, problem: str) -> list[str]:
    """Return one problem's table, the error of its reference, and remarks on each method."""
    scores = {name: results.scores[problem].get(name) for name in results.entrants(problem)}
    rows = [_row(name, score) for name, score in scores.items() if score and score.has_answer]
    remarks = [
        f"- {title(name)}: {text}." for name, score in scores.items() if (text := _remark(score))
    ]
    if missing := [name for name, score in scores.items() if score is None]:
        remarks.append(f"- Not run: {', '.join(map(title, missing))}.")
    used = [place for place in range(len(COLUMNS)) if any(row[place] != "–" for row in rows)]
    return [
        f"### {problem}",
        "",
        f"{results.fact(problem, 'about', '')}; K = {results.fact(problem, 'num_shards', '?')}.",
        "",
        *table(
            [COLUMNS[place] for place in used], [[row[place] for place in used] for row in rows]
        ),
        "",
        _reference(results.scores[problem][REFERENCE].about),
        "",
        "<details><summary>Settings</summary>",
        "",
        *remarks,
        "",
        "</details>",
        "",
    ]


def _row(name: str, score: Score) -> list[str]:
    about = score.about
    return [
        title(name),
        error(score.mean),
        capped(score.worst, 2),
        capped(100 * score.sd, 1),
        capped(100 * score.worst_sd, 1),
        capped(score.quantile, 3),
        error(score.local_mean),
        capped(score.local_worst, 2),
        capped(100 * score.local_sd, 1),
        capped(100 * score.local_worst_sd, 1),
        capped(score.local_quantile, 3),
        duration(score.seconds),
        number(about.get("seconds_compile"), 1),
        duration(score.to_goal),
        duration(about.get("seconds_critical")),
        number(score.ess / score.seconds, 1),
        number(about.get("megabytes"), 0),
    ]


def _reference(about: dict[str, Any]) -> str:
    if "errors" not in about:
        return f"Reference: {about.get('failure', 'none')}."
    mean, sd, quantile = about["errors"]
    return (
        f"Reference: {about['origin']}, in {about['seconds']:.0f} s; it is off by {mean:.4f} sd "
        f"(means), {100 * sd:.2f} % (sds) and {quantile:.4f} sd (quantiles; medians)."
    )


def _remark(score: Score | None) -> str:
    about = score.about if score else {}
    verdict = f"verdict {about['verdict']}" if about.get("verdict") else ""
    texts = (about.get("failure"), about.get("remark"), verdict)
    return "; ".join(text.rstrip(".") for text in texts if text)


def stages(results: Results) -> list[str]:
    """Return vcmc's seconds by stage."""
    scores = {problem: results.scores[problem].get(OURS) for problem in results.problems}
    known = {name: score for name, score in scores.items() if score and "stages" in score.about}
    names = list(dict.fromkeys(name for score in known.values() for name in score.about["stages"]))
    rows = [
        [
            problem,
            *(number(score.about["stages"].get(name), 1) for name in names),
            duration(score.seconds),
        ]
        for problem, score in known.items()
    ]
    return table(["problem", *names, "in all"], rows)


def by_rows(results: Results) -> list[str]:
    """Return the seconds of vcmc and of NUTS by number of rows of the logistic regression."""
    rows = []
    for problem, scores in results.scores.items():
        own, apart, serial = (scores.get(name) for name in (OURS, LISTED, NUTS))
        if problem.partition("@")[0] != "logistic" or own is None:
            continue
        abouts = [score.about if score else {} for score in (own, apart, serial)]
        ours, listed, nuts = abouts
        num_rows = results.num_rows(problem)
        cells = [
            f"{num_rows:,}",
            str(ours.get("num_shards_used", "–")),
            duration(ours.get("seconds")),
            str(listed.get("num_shards_used", "–")),
            duration(listed.get("seconds")),
            duration(listed.get("seconds_critical")),
            duration(nuts.get("seconds")),
            nuts.get("remark", "–"),
        ]
        rows.append((num_rows, cells))
    columns = (
        "rows",
        "K chosen by vcmc",
        "vcmc, s",
        "K as listed",
        "vcmc, s",
        "with a machine per shard",
        f"{NUTS}, s",
        "",
    )
    return table(columns, [cells for _, cells in sorted(rows)])
