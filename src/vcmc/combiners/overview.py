"""The table of all combiners and what they need, as it stands in `docs/combiners.md`.

Run: python -m vcmc.combiners.overview
"""

import inspect
import sys

from .. import combiners
from .base import AbstractCombiner


def overview() -> str:
    """A row for every combiner: what it does, by its docstring; its paper, by its file's; and its needs."""
    head = "| combiner | what it does | source | shards | full-data target | one shard at a time |"
    return "\n".join([head, "|---" * 6 + "|", *map(_row, menu())])


def menu() -> list[type[AbstractCombiner]]:
    """All combiners, in the order of their names."""
    every = (getattr(combiners, name) for name in combiners.__all__)
    classes = (
        each for each in every if inspect.isclass(each) and issubclass(each, AbstractCombiner)
    )
    return [each for each in classes if not inspect.isabstract(each)]


def _row(kind: type[AbstractCombiner]) -> str:
    needs = kind().needs
    target = "log density and scores" if needs.scores else "log density" if needs.target else ""
    what = inspect.getdoc(kind) or ""
    cells = (
        f"`{kind.__name__}`",
        what.splitlines()[0].rstrip("."),
        source(kind),
        needs.prior,
        target,
        "yes" if needs.streams else "",
    )
    return f"| {' | '.join(cells)} |"


def source(kind: type[AbstractCombiner]) -> str:
    """The paper that a combiner's file names at its top: authors, title and year."""
    text = " ".join((sys.modules[kind.__module__].__doc__ or "").split("\n\n")[1].split())
    return text[: text.index(")") + 1]


if __name__ == "__main__":
    print(overview())
