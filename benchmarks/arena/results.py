"""benchmarks/RESULTS.md from the arena's answers: tables, pictures, and who wins where."""

import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
from contestants import CONTESTANTS
from scores import GOAL, Score, Scores, scores_of

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()

HEAD = (
    "| | means, sds off | worst | sds, % off | 5–95 %, sds off | seconds | of these compiling | seconds to 0.1 sd | effective draws/s | MB |",
    "|---|---|---|---|---|---|---|---|---|---|",
)


def write_page(folder: Path, where: Path) -> None:
    """Write the page and its pictures."""
    scores = scores_of(folder)
    contests = [name for name in ORDER if name in scores]
    first = next(iter(next(iter(scores.values())).values())).about
    lines = [
        "# The arena: against what a user would pick instead",
        "",
        f"Written by `make bench` on {CORES} cores ({platform.machine()}, no GPU), all in double precision. {', '.join(first.get('versions', []))}.",
        "",
        _when(scores),
        "",
        "Each contestant ran in a process of its own, one after the other, and was stopped if it took too long; of chains that were stopped, the draws by then count.",
        "Errors are medians over all numbers of the model, against long chains on all rows (`benchmarks/arena/reference.py`), whose own error is told below each table;",
        "`worst` is the largest error of a mean. Seconds contain compiling. What each contestant does is said in `benchmarks/arena/contestants.py` and beside it.",
        "",
        *_findings(scores),
        "![Errors of means against seconds, a panel for each problem](arena/arena.png)",
        "",
        f"Below and left is better; triangles are beyond {MOST_SDS:g} sds.",
        "",
    ]
    for contest in contests:
        lines += _section(contest, scores[contest])
    lines += _sweep(scores)
    lines += _notes(folder.parent / "notes.md")
    where.write_text("\n".join(lines).rstrip() + "\n")
    _picture({name: scores[name] for name in contests}, where.parent / "arena" / "arena.png")


def _when(scores: Scores) -> str:
    """The days of the run, and how long it took."""
    abouts = [score.about for here in scores.values() for score in here.values()]
    ends = sorted(about["ended"] for about in abouts if "ended" in about)
    minutes = sum(about.get("seconds_waited", 0.0) for about in abouts) / 60
    return f"Answers were made between {ends[0]} and {ends[-1]}, in {minutes:.0f} minutes in all."


ORDER = ("logistic", "probit", "poisson", "robust", "mixture", "wishart", "rare", "small")


def _section(contest: str, scores: dict[str, Score]) -> list[str]:
    exact = scores["reference"]
    about = next((each.about for each in scores.values() if "about" in each.about), {})
    lines = [
        f"## {contest}: {about.get('about', '')}; K = {about.get('num_shards', '?')}",
        "",
        *HEAD,
    ]
    there = [name for name in CONTESTANTS if name in scores]
    lines += [_line(name, scores[name]) for name in there if np.isfinite(scores[name].mean)]
    remarks = [
        f"{name}: {'; '.join(filter(None, (scores[name].about.get('failure'), scores[name].about.get('remark'))))}"
        for name in there
        if scores[name].about.get("failure") or scores[name].about.get("remark")
    ]
    if missing := [name for name in CONTESTANTS if name not in scores]:
        remarks.append(f"Not run: {', '.join(missing)}")
    chance = f"The reference, made in {exact.seconds:.0f} s, has {exact.ess:.0f} effective draws, and so is off by {0.67 / np.sqrt(exact.ess):.3f} sd itself. "
    return [*lines, "", chance + ". ".join(remarks) + ".", ""]


def _line(name: str, score: Score) -> str:
    critical = score.about.get("seconds_critical", np.nan)
    goal = _number(score.to_goal, 1)
    if np.isfinite(critical):
        goal += f" ({critical:.1f} on a machine for each shard)"
    cells = (
        name,
        _number(score.mean, 3),
        _number(score.worst, 2),
        _number(100 * score.sd, 1),
        _number(score.quantile, 3),
        _number(score.seconds, 1),
        _number(score.about.get("seconds_compile", np.nan), 1),
        goal,
        _number(score.ess / score.seconds, 1),
        _number(score.about.get("megabytes", np.nan), 0),
    )
    return "| " + " | ".join(cells) + " |"


def _number(value: float | None, digits: int) -> str:
    return f"{value:.{digits}f}" if value is not None and np.isfinite(value) else "–"


def _findings(scores: Scores) -> list[str]:
    """What was to be shown, and whether it was."""
    lines = ["## What was to be shown", ""]
    for contest in ("logistic", "probit"):
        here = scores.get(contest, {})
        if "NumPyro NUTS" not in here or "vcmc" not in here:
            continue
        serial, ours = here["NumPyro NUTS"], here["vcmc"]
        waited, least = serial.to_goal, ""
        if not np.isfinite(waited):
            waited, least = serial.about.get("seconds_waited", serial.seconds), "more than "
        slowest, critical = ours.about["seconds_slowest"], ours.about["seconds_critical"]
        lines.append(
            f"- {contest}: full-data NUTS reaches 0.1 sd after {least}{waited:.0f} s, vcmc as it comes after {ours.to_goal:.0f} s: "
            f"{least}{waited / ours.to_goal:.1f} times sooner (goal: 5). Its slowest shard and the combination take {slowest:.1f} s: "
            f"{least}{waited / slowest:.0f} times sooner (goal: 50); with start and compiling, on a machine for each shard, {critical:.1f} s: "
            f"{least}{waited / critical:.0f} times."
        )
    if "NumPyro NUTS" in scores.get("small", {}):
        names = ("vcmc", "NumPyro NUTS", "PyMC, nutpie")
        few = {name: scores["small"][name] for name in names if name in scores["small"]}
        told = ", ".join(f"{name} {score.to_goal:.1f} s" for name, score in few.items())
        lines.append(
            f"- small, where there is nothing to gain from shards: seconds to 0.1 sd: {told}."
        )
    approximations = ("SVI, full", "SVI, diagonal", "Laplace", "Pathfinder")
    lines += _against(scores, "vcmc", approximations, 3.0, ORDER)
    lines += _against(scores, "vcmc, refined", approximations, 3.0, ("rare", "small"))
    combinations = tuple(
        name for name in CONTESTANTS if name.startswith(("NumPyro c", "NumPyro p"))
    )
    lines += _against(scores, "vcmc", combinations, 1.5, ORDER)
    return [*lines, ""]


def _against(
    scores: Scores, own: str, peers: tuple[str, ...], limit: float, contests: tuple[str, ...]
) -> list[str]:
    lines = []
    for peer in peers:
        better, worse, slower = [], [], []
        for contest in contests:
            here = scores.get(contest, {})
            if (
                own not in here
                or peer not in here
                or not np.isfinite(here[peer].mean + here[own].mean)
            ):
                continue
            ours, theirs = here[own], here[peer]
            ratios = [
                getattr(theirs, what) / getattr(ours, what) for what in ("mean", "sd", "quantile")
            ]
            text = contest + " (" + ", ".join(f"{ratio:.1f}" for ratio in ratios) + ")"
            (better if min(ratios) >= 1 else worse).append(text)
            if ours.seconds > limit * theirs.seconds:
                slower.append(f"{contest} ({ours.seconds / theirs.seconds:.1f})")
        lines.append(
            f"- {own} against {peer}: its errors, in ours (means, sds, quantiles). We err less in all three on {', '.join(better) or 'none'}; not on "
            f"{', '.join(worse) or 'none'}. We take more than {limit:g} times its seconds on {', '.join(slower) or 'none'}."
        )
    return lines


def _sweep(scores: Scores) -> list[str]:
    lines = [
        "## Cost against N and K",
        "",
        "Logistic regression, 50 covariates; vcmc with 100 draws of every shard.",
        "",
        "| rows | shards | vcmc, s | of these compiling | on a machine for each shard | NumPyro NUTS, s | its draws |",
        "|---|---|---|---|---|---|---|",
    ]
    found = []
    for contest, here in scores.items():
        if not contest.startswith("logistic") or "vcmc, 100 draws" not in here:
            continue
        ours = here["vcmc, 100 draws"].about
        if "seconds" not in ours:
            continue
        num_rows = int(contest.partition("@")[2].partition("/")[0] or 1_000_000)
        serial = here["NumPyro NUTS"].about if "NumPyro NUTS" in here else {}
        found.append(
            (
                num_rows,
                ours["num_shards"],
                f"{ours['seconds']:.1f}",
                f"{ours['seconds_compile']:.1f}",
                f"{ours['seconds_critical']:.1f}",
                _number(serial.get("seconds"), 1),
                serial.get("remark", "–"),
            )
        )
    return [*lines, *("| " + " | ".join(map(str, line)) + " |" for line in sorted(found)), ""]


def _notes(path: Path) -> list[str]:
    return [path.read_text()] if path.exists() else []


MOST_SDS = 3.0  # errors beyond are drawn here, as if they were no larger


def _place(score: Score) -> tuple[float, float]:
    return score.seconds, min(score.mean, MOST_SDS)


def _is_ours(name: str) -> bool:
    return name.startswith("vcmc")


def _picture(scores: Scores, path: Path) -> None:
    """Error of means against seconds, a panel for each contest."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    figure = Figure(figsize=(16, 9), layout="constrained")
    panels = list(figure.subplots(2, 4).flat)
    for axes in panels[len(scores) :]:
        axes.set_visible(False)
    shown = []
    for axes, (contest, here) in zip(panels, scores.items(), strict=False):
        there = {
            name: score
            for name, score in here.items()
            if name != "reference" and np.isfinite(score.mean)
        }
        for name, score in there.items():
            marker = "^" if score.mean > MOST_SDS else "o"
            axes.plot(*_place(score), marker, color="tab:blue" if _is_ours(name) else "0.5")
        axes.axhline(GOAL, color="tab:red", linewidth=0.7, linestyle="--")
        axes.set(
            title=contest, xscale="log", yscale="log", xlabel="seconds", ylabel="means off by, sds"
        )
        axes.spines[["top", "right"]].set_visible(False)
        low, high = axes.get_xlim()
        axes.set_xlim(low / (high / low) ** 0.1, high * (high / low) ** 0.6)  # room for names
        low, high = axes.get_ylim()
        axes.set_ylim(low / (high / low) ** 0.1, high)
        for axis in (axes.xaxis, axes.yaxis):
            low, high = axis.get_view_interval()
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1, 3)))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_locator(NullLocator())
        shown.append((axes, there))
    figure.draw_without_rendering()  # now places are known
    figure.set_layout_engine("none")
    for axes, there in shown:
        _label(axes, there)
    figure.savefig(path, dpi=90)


LINE, LETTER = 11.0, 4.6  # points: height and width of what is written
LINK = {"arrowstyle": "-", "linewidth": 0.5, "color": "0.6", "shrinkA": 0}


def _label(axes: Any, scores: dict[str, Score]) -> None:
    """Names beside their points, to the right or left, each as near as it can be without touching another name or point."""
    unit = axes.figure.dpi / 72
    places = {
        name: axes.transData.transform(_place(score)) / unit for name, score in scores.items()
    }
    edge, bottom = axes.bbox.x0 / unit, axes.bbox.y0 / unit + LINE
    taken = [(across - 3, across + 3, up) for across, up in places.values()]  # left, right, height
    for name, (across, up) in sorted(places.items(), key=lambda each: each[1][1]):
        width = LETTER * len(name)
        tried = (
            (start, height)
            for away in range(20)
            for start in (across + 8, across - 8 - width)
            for height in (up + away * LINE / 2, up - away * LINE / 2)
        )
        free = (
            (start, height)
            for start, height in tried
            if start > edge
            and height > bottom
            and not any(
                start < right and left < start + width and abs(height - middle) < LINE
                for left, right, middle in taken
            )
        )
        start, height = next(free, (across + 8, up))
        taken.append((start, start + width, height))
        near = abs(height - up) < LINE
        axes.annotate(
            name,
            _place(scores[name]),
            xytext=(start - across if start > across else -8, height - up),
            textcoords="offset points",
            ha="left" if start > across else "right",
            va="center",
            fontsize=8,
            color="tab:blue" if _is_ours(name) else "0.2",
            arrowprops=None if near else LINK | {"relpos": (0.0 if start > across else 1.0, 0.5)},
        )
