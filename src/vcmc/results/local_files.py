"""Local draws in a run directory: what was drawn before a crash is not drawn again.

```
runs/big/locals/
  00003.parquet        local draws of shard 3, if they are kept in files
  00003.npz            its summary, or its draws until the result is stored
  index.npz            the file of every group, and its place in there
  shared.json          what the draws are, and random text, by which processes elsewhere see
                       whether the folder is shared
```

A row of a Parquet file is one draw of one group: the group's label, `chain`, `draw`, and a column
for every local parameter, a list of fixed size if it is a vector or a matrix. Rows are sorted by
group, chain and draw, and a row group holds whole groups. Pages have checksums, and 00003.npz has
one of the whole file.
"""

import contextlib
import hashlib
import json
import os
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .checked_files import (
    CHECKSUM_BYTES,
    FILE_MODE,
    READ_BYTES,
    as_store_error,
    from_json_array,
    json_array,
    make_folder,
    read_arrays,
    read_json,
    sync_files,
    write,
    write_arrays,
    write_json,
)

ROW_GROUP_ROWS = 2**18  # at most, unless a group has more draws: what is read for one group
CHAIN, DRAW = "chain", "draw"
INDEX, SHARED, ABOUT, ACCEPTANCE = "index.npz", "shared.json", "about", "acceptance"
VALUES = "values/"  # prefix of the names under which draws or summaries are stored


def check_pyarrow() -> None:
    """Raise an error unless Parquet files can be written."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'local draws in files need pyarrow: pip install "vcmc[parquet]"'
        ) from error


class LocalPart(NamedTuple):
    """What was drawn for the groups of one shard.

    Attributes:
        values: draws (draw, group, …) or a summary (statistic, group, …) by name.
        acceptance: for each group, the share of proposals that were accepted.
        checksum: of the Parquet file of draws, if there is one.
        content: the Parquet file itself, where the process that made it could not store it.
        is_stored: whether the part is in the run directory.
    """

    values: dict[str, np.ndarray]
    acceptance: Float[np.ndarray, " group"]
    checksum: str = ""
    content: bytes = b""
    is_stored: bool = False


class LocalIndex(NamedTuple):
    """Where the local draws of groups are.

    Attributes:
        labels: the labels of all groups.
        files: the number of the file of each.
        places: its place among the groups of this file.
        column: the column of groups.
        num_chains, num_draws: the sizes of these axes.
        shapes: the shapes of local parameters by name.
        identity: identifies what was drawn.
    """

    labels: np.ndarray
    files: Int[np.ndarray, " group"]
    places: Int[np.ndarray, " group"]
    column: str
    num_chains: int
    num_draws: int
    shapes: dict[str, tuple[int, ...]]
    identity: str


@dataclass(frozen=True)
class LocalsFolder:
    """The folder of local draws of a run directory."""

    path: Path

    def begin(self, identity: str) -> str:
        """Delete what belongs to other draws, and return a new text by which the folder is known.

        Raise a `StoreError` if the folder cannot be written.
        """
        for file in self.path.glob(".*.new"):  # of a process that was killed
            file.unlink(missing_ok=True)
        if self._shared().get("identity") != identity:
            for file in [*self.path.glob("*.npz"), *self.path.glob("*.parquet")]:
                file.unlink(missing_ok=True)
        token = uuid.uuid4().hex
        write_json(self.path / SHARED, {"identity": identity, "token": token})
        return token

    def is_shared(self, token: str) -> bool:
        """Return whether this process sees the folder of the process that began it."""
        return self._shared().get("token") == token

    def _shared(self) -> dict[str, Any]:
        try:
            return read_json(self.path / SHARED)
        except (OSError, ValueError):
            return {}

    def parquet(self, shard: int) -> Path:
        """Return the file of the draws of a shard's groups."""
        return self.path / f"{shard:05}.parquet"

    def part(self, shard: int, identity: str) -> LocalPart | None:
        """Return what was stored of a shard; None if it is missing, damaged or another one."""
        arrays = read_arrays(self._part_file(shard))
        if arrays is None or ABOUT not in arrays:
            return None
        about = from_json_array(arrays.pop(ABOUT))
        if about["identity"] != identity:
            return None
        checksum = about["checksum"]
        if checksum and file_checksum(self.parquet(shard)) != checksum:
            return None
        acceptance = arrays.pop(ACCEPTANCE)
        values = {name.removeprefix(VALUES): array for name, array in arrays.items()}
        return LocalPart(values, acceptance, checksum, is_stored=True)

    def save(self, shard: int, identity: str, part: LocalPart) -> LocalPart:
        """Store a part; its Parquet file is there already, or in `content`."""
        if part.content:
            write(self.parquet(shard), part.content)
        about = {"identity": identity, "checksum": part.checksum}
        arrays = {f"{VALUES}{name}": array for name, array in part.values.items()}
        arrays |= {ACCEPTANCE: part.acceptance, ABOUT: json_array(about)}
        write_arrays(self._part_file(shard), arrays)
        return part._replace(content=b"", is_stored=True)

    def save_index(self, index: LocalIndex) -> None:
        """Store where the draws of groups are: they are complete."""
        about = index._asdict()
        arrays = {name: about.pop(name) for name in ("labels", "files", "places")}
        write_arrays(self.path / INDEX, {**arrays, ABOUT: json_array(about)})

    def index(self) -> LocalIndex | None:
        """Return where the draws of groups are; None if they are not complete."""
        arrays = read_arrays(self.path / INDEX)
        if arrays is None or ABOUT not in arrays:
            return None
        about: dict[str, Any] = from_json_array(arrays.pop(ABOUT))
        about["shapes"] = {name: tuple(shape) for name, shape in about["shapes"].items()}
        return LocalIndex(**(arrays | about))

    def is_complete(self) -> bool:
        """Return whether there is an index, and all files that it names."""
        index = self.index()
        return index is not None and all(
            self.parquet(number).exists() for number in np.unique(index.files).tolist()
        )

    def discard_parts(self) -> None:
        """Delete parts that are not beside a Parquet file: the result has them."""
        for file in self.path.glob("*.npz"):
            if file.name != INDEX and not file.with_suffix(".parquet").exists():
                file.unlink(missing_ok=True)

    def _part_file(self, shard: int) -> Path:
        return self.path / f"{shard:05}.npz"


def file_checksum(path: Path) -> str:
    """Return the checksum of a file; an empty text if it cannot be read."""
    digest = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
    try:
        with path.open("rb") as file:
            while block := file.read(READ_BYTES):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()


class LocalsWriter:
    """Write the local draws of a shard's groups to a Parquet file, block by block.

    Args:
        path: the file.
        column: the column of groups.
        num_chains: number of chains, which the draws are of in turn.
    """

    def __init__(self, path: Path, column: str, num_chains: int):
        self._path, self._column, self._num_chains = path, column, num_chains
        self._writer: Any = None

    def write(self, labels: np.ndarray, values: Mapping[str, np.ndarray]) -> None:
        """Write the draws (draw, group, …) of some groups."""
        num_draws = len(next(iter(values.values())))
        step = max(1, ROW_GROUP_ROWS // num_draws)
        for first in range(0, len(labels), step):
            chosen = slice(first, first + step)
            few = {name: array[:, chosen] for name, array in values.items()}
            self._write_row_group(self._table(labels[chosen], few, num_draws))

    def _table(self, labels: np.ndarray, values: Mapping[str, np.ndarray], num_draws: int) -> Any:
        import pyarrow as pa

        per_chain = num_draws // self._num_chains
        chain = np.repeat(np.arange(self._num_chains, dtype=np.int32), per_chain)
        draw = np.tile(np.arange(per_chain, dtype=np.int32), self._num_chains)
        columns = {
            self._column: pa.array(labels).take(np.repeat(np.arange(len(labels)), num_draws)),
            CHAIN: pa.array(np.tile(chain, len(labels))),
            DRAW: pa.array(np.tile(draw, len(labels))),
        }
        for name, array in values.items():
            flat = pa.array(np.swapaxes(array, 0, 1).ravel())
            size = int(np.prod(array.shape[2:]))
            is_vector = array.ndim > 2
            columns[name] = pa.FixedSizeListArray.from_arrays(flat, size) if is_vector else flat
        return pa.table(columns)

    def _write_row_group(self, table: Any) -> None:
        import pyarrow.parquet as pq

        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._path,
                table.schema,
                use_dictionary=[self._column, CHAIN, DRAW],
                write_page_checksum=True,
            )
        self._writer.write_table(table, row_group_size=len(table))

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name, and rename the file that is written there in one step."""
    new = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.new")
    with as_store_error(path):
        make_folder(path.parent)
        os.close(os.open(new, os.O_CREAT | os.O_WRONLY, FILE_MODE))  # that only the user can read
        try:
            yield new
            sync_files([new])
            os.replace(new, path)
            sync_files([path])
        except BaseException:
            new.unlink(missing_ok=True)
            raise


def identity_of(*arrays: np.ndarray, **settings: Any) -> str:
    """Return a text that identifies what is drawn, by the arrays and settings it depends on."""
    digest = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16)
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
