"""The figures of the README and of benchmarks/README.md: blocks between comments, made anew.

A block begins with `<!--results:NAME-->` and ends with `<!--/results-->`. In Markdown, a line that
begins with a comment is no text; so the first comment stands at the end of a line or within one.
"""

import re
import textwrap

import numpy as np
from contests import contest, contestants, heading, nuts_time
from records import GOAL_SD, LISTED, NUTS, OURS, Results
from tables import capped, count, duration, seconds, table

# The first of these that there are, in the order of the page; no more of them fit on a line.
PROBLEMS = ("logistic", "mixture", "rare", "flights", "planes", "small")
MAX_COLUMNS = 5
METHODS = (
    OURS,
    NUTS,
    "PyMC, nutpie",
    "NumPyro HMCECS",
    "SVI, full",
    "Laplace",
    "NumPyro consensus",
)
FIRST = "logistic"  # the problem of the README's first sentence, which names it
FEW_ROWS = 50_000
WIDTH = 120
BLOCK = re.compile(r"(<!--results:(\w+)-->)(.*?)(<!--/results-->)", re.DOTALL)
VARIANTS = (", unconstrained", ", centred")  # the same alternative in other coordinates
MISSED = re.compile(r"not in [\d.]+")  # the goal; the page says after how many seconds
END = "<!--/results-->"


def renewed(text: str, results: Results) -> str:
    """Return a document with all its blocks made anew."""
    blocks = {"headline": headline, "contest": comparison, "few": few_rows, "arena": arena}
    return BLOCK.sub(lambda match: match[1] + blocks[match[2]](results) + match[4], text)


def _filled(text: str, indent: str = "") -> str:
    """Return text on lines of its own, with room for the comment that ends the block."""
    lines = textwrap.fill(
        text + END,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n" + lines.removesuffix(END)


def headline(results: Results) -> str:
    """Set vcmc against NUTS on the problem with most rows."""
    ours, serial = _first(results)
    return _filled(
        f"on {count(results.setting['cores'])} cores vcmc takes {ours} with its error estimate, "
        f"full-data NUTS {serial} to know the means to {GOAL_SD:g} sd."
    )


def arena(results: Results) -> str:
    """Say the same in the table of benchmarks."""
    ours, serial = _first(results)
    return f"within {GOAL_SD:g} sd after {ours}, NUTS after {serial}"


def _first(results: Results) -> tuple[str, str]:
    """Return the seconds to the goal of vcmc and of NUTS."""
    own = results.score(FIRST, OURS)
    serial, least = nuts_time(results, FIRST)
    if own is None or not np.isfinite(own.to_goal + serial):
        raise ValueError(
            f"the README's first sentence needs vcmc within {GOAL_SD:g} sd and {NUTS} on {FIRST}; "
            "got no such answer. Try: make bench"
        )
    return seconds(own.to_goal), least + seconds(serial)


def comparison(results: Results) -> str:
    """Return a part of the main table, and what it does not show."""
    answers = {name for problem in results.problems for name, _ in results.rivals(problem)}
    kinds = [name for name in answers if not name.endswith(VARIANTS)]
    texts = [
        "Medians over parameters; compilation and vcmc's error estimate count.",
        _apart(results),
        _consensus(results),
        f"[All results](benchmarks/RESULTS.md), {results.setting['ended'][:10]}: "
        f"{count(len(results.problems))} problems, {count(len(kinds))} alternatives, where they "
        "win.",
    ]
    return "\n\n" + "\n".join(_table(results)) + "\n" + _filled(" ".join(filter(None, texts)))


def _table(results: Results) -> list[str]:
    """Return the contests on some problems, with a line for each method, as lines are short."""
    known = [name for name in PROBLEMS if name in results.problems][:MAX_COLUMNS]
    problems = [name for name in results.problems if name in known]
    methods = contestants(results, problems, METHODS)
    columns = [contest(results, name, methods) for name in problems]
    rows = [[heading(name), *cells] for name, *cells in zip(methods, *columns, strict=True)]
    headings = [f"{name}, {results.num_rows(name):,}" for name in problems]
    return [MISSED.sub("–", line) for line in table(["problem, rows", *headings], rows)]


def _apart(results: Results) -> str:
    """Say what the first problem would take with a machine per shard."""
    score = results.score(FIRST, LISTED)
    apart = score.about.get("seconds_critical") if score else None
    return f"With a machine per shard, vcmc takes {duration(apart)} s on {FIRST}." if apart else ""


def _consensus(results: Results) -> str:
    """Explain the error of consensus on the mixture."""
    plain = results.score("mixture", "NumPyro consensus")
    free = results.score("mixture", "NumPyro consensus, unconstrained")
    if not (plain and free and free.mean < plain.mean):
        return ""
    return (
        "NumPyro's consensus averages the mixture's ordered centres as numbers; unconstrained, it "
        f"is {capped(free.mean, 2)} sd off."
    )


def few_rows(results: Results) -> str:
    """Count the problems with few rows on which NUTS or nutpie is sooner."""
    sooner = {}
    for name in results.problems:
        own = results.score(name, OURS)
        if results.is_hierarchical(name) or results.num_rows(name) > FEW_ROWS or own is None:
            continue
        rivals = [results.score(name, peer) for peer in (NUTS, "PyMC, nutpie")]
        ours = np.nan_to_num(own.to_goal, nan=np.inf)
        sooner[name] = any(rival.to_goal < ours for rival in rivals if rival)
    rows = [results.num_rows(name) for name in sooner]
    return _filled(
        f"On {count(sum(sooner.values()))} of the {count(len(sooner))} problems with "
        f"{min(rows):,} to {max(rows):,} rows, NUTS or nutpie was within "
        f"{GOAL_SD:g} sd before vcmc.",
        indent="  ",
    )
