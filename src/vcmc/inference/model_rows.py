"""Rows as a model reads them: without other columns, and with numbers of levels in place of text.

A partition is taken as it is, if its levels are those of the model.
"""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ..data.batches import columns_of, is_large
from ..data.categories import Levels, check_same_levels, encode_text, frame_dim, is_text
from ..data.files import FilePartition
from ..data.partition import Partition
from ..data.rows import original_columns
from ..data.shard import AbstractPartition
from ..data.size import FileRows
from ..model import Model


@dataclass(frozen=True)
class ReadColumns:
    """Which columns of rows a model reads, and how.

    Attributes:
        names: the columns; None if the model does not say.
        levels: the levels of columns of text.
        skip: columns that the model does not get as they are: labels of groups, weights.
        refuses_text: whether text without known levels is refused, or left as it is.
    """

    names: frozenset[str] | None
    levels: Levels
    skip: frozenset[str]
    refuses_text: bool = True

    def in_memory(self, rows: Any) -> dict[str, Any]:
        """Return the columns of rows in memory."""
        columns = {
            name: column
            for name, column in original_columns(rows).items()
            if self.names is None or name in self.names
        }
        if not columns:
            return dict(original_columns(rows))
        for name, column in columns.items():
            self._check_frame(name, column)
        text = [name for name, column in columns.items() if is_text(column)]
        unknown = self._unknown(text)
        return encode_text(columns, self.levels, skip=self.skip.union(unknown))[0]

    def _check_frame(self, name: str, column: Any) -> None:
        """Refuse an array given as a data frame whose columns are not those of the model."""
        own = self.levels.get(frame_dim(name))
        if own is None or not hasattr(column, "columns"):
            return
        names = [str(label) for label in column.columns]
        if names != own.tolist():
            raise ValueError(
                f"the frame rows[{name!r}] must have the columns that the model was made with, in "
                f"their order, {own.tolist()}; got {names}. Try frame[{own.tolist()}]."
            )

    def in_file(self, rows: FileRows) -> FileRows:
        """Return the columns of rows that are read in batches."""
        is_text_column = columns_of(rows.path)
        sources = dict(rows.columns or {name: name for name in is_text_column})
        kept = {
            name: source
            for name, source in sources.items()
            if self.names is None or name in self.names
        }
        text = [name for name, source in kept.items() if is_text_column.get(str(source))]
        others = self.skip.union(self._unknown(text))
        levels = {name: self.levels[name] for name in text if name not in others}
        columns = rows.columns if len(kept) in (0, len(sources)) else kept
        return FileRows(rows.path, columns, levels or None)

    def _unknown(self, names: Collection[str]) -> list[str]:
        """Return the columns of text whose levels are not known, unless they are refused."""
        unknown = [name for name in names if name not in {*self.levels, *self.skip}]
        if not unknown or not self.refuses_text:
            return unknown
        name = unknown[0]
        raise ValueError(
            f"rows[{name!r}] is text, and the model does not say which numbers to give to its "
            f"levels: name them, Model(..., coords={{{name!r}: [...]}}), or name the columns that "
            "the model reads, Model(..., columns=[...])."
        )


@dataclass(frozen=True)
class ReadLoader:
    """A function that loads a shard's rows as a model reads them, in any process."""

    load: Callable[[int], Any]
    columns: ReadColumns

    def __call__(self, shard: int) -> dict[str, Any]:
        return self.columns.in_memory(self.load(shard))


def model_rows(
    rows: Any,
    model: Model,
    weights: str | None = None,
    keep: Collection[str] = (),
    refuses_text: bool = True,
    is_fit: bool = True,
) -> Any:
    """Return rows in any form with those columns that a model reads, and text as numbers.

    Args:
        rows: rows as `infer` takes them.
        model: the model.
        weights: the column with the weights of rows, which is kept.
        keep: further columns that are kept.
        refuses_text: whether text without known levels is refused, or left as it is.
        is_fit: whether the model is evaluated at the rows, for which it needs all its columns.
    """
    if is_fit:
        _check_columns(rows, model)
    groups = model.local.groups if model.local else None
    skip = frozenset(name for name in (weights, groups) if isinstance(name, str))
    names = None if model.columns is None else skip.union(model.columns, keep)
    read = ReadColumns(names, model.levels, skip, refuses_text)
    if isinstance(rows, AbstractPartition):
        check_same_levels(rows.levels, model.levels)
        return rows
    if isinstance(rows, FileRows):
        return read.in_file(rows)
    if isinstance(rows, str | os.PathLike):
        return read.in_file(FileRows(rows))
    if isinstance(rows, Mapping) and is_large(rows):
        kept = [name for name in rows if names is None or name in names]
        return {name: rows[name] for name in kept or rows}
    if callable(rows) and not hasattr(rows, "columns"):
        return ReadLoader(rows, read)
    return read.in_memory(rows)


def _check_columns(rows: Any, model: Model) -> None:
    """Refuse rows without a column that the model reads: it would draw what it does not observe."""
    present = _column_names(rows)
    if model.columns is None or present is None:
        return
    if missing := [name for name in model.columns if name not in present]:
        raise ValueError(
            f"rows must have the columns that the model reads, {list(model.columns)}; {missing} "
            f"are missing from {sorted(map(str, present))}."
        )


def _column_names(rows: Any) -> Collection[str] | None:
    """Return the names of the columns of rows in any form; None if they are not known yet."""
    if isinstance(rows, str | os.PathLike):
        rows = FileRows(rows)
    if isinstance(rows, FileRows):
        return rows.columns or columns_of(rows.path)
    if isinstance(rows, Partition):
        return rows.rows
    if isinstance(rows, FilePartition):
        return rows.columns
    if isinstance(rows, AbstractPartition) or (not hasattr(rows, "keys") and callable(rows)):
        return None
    return original_columns(rows)
