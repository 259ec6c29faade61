"""Generate the table of all combiners in `docs/combiners.md`.

Run: python -m vcmc.combiners.overview
"""

import inspect
import sys

from .. import combiners
from .base import AbstractCombiner


def overview() -> str:
    """Return a Markdown table: name, summary, paper and requirements of each combiner.

    The summary is the first line of the class's docstring; the paper is cited by its module's.
    """
    head = "| combiner | summary | source | shards | full-data target | one shard at a time |"
    return "\n".join([head, "|---" * 6 + "|", *map(_row, menu())])


def menu() -> list[type[AbstractCombiner]]:
    """Return all combiners, sorted by name."""
    members = (getattr(combiners, name) for name in combiners.__all__)
    return [
        member
        for member in members
        if inspect.isclass(member)
        and issubclass(member, AbstractCombiner)
        and not inspect.isabstract(member)
    ]


def _row(combiner: type[AbstractCombiner]) -> str:
    needs = combiner().needs
    target = "log density and scores" if needs.scores else "log density" if needs.target else ""
    summary = (inspect.getdoc(combiner) or "").splitlines()[0].rstrip(".")
    streams = "yes" if needs.streams else ""
    cells = (f"`{combiner.__name__}`", summary, source(combiner), needs.prior, target, streams)
    return f"| {' | '.join(cells)} |"


def source(combiner: type[AbstractCombiner]) -> str:
    """Return authors, title and year of the paper that opens the module's second paragraph."""
    docstring = sys.modules[combiner.__module__].__doc__ or ""
    paragraph = " ".join(docstring.split("\n\n")[1].split())
    return paragraph[: paragraph.index(")") + 1]


if __name__ == "__main__":
    print(overview())
