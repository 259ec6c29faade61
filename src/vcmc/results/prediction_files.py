"""Predictions by row in a Parquet file, which is written part by part and can be resumed.

```
.predictions.parquet.parts/   beside predictions.parquet, until that is complete
  written-by-vcmc.txt         marks the folder as vcmc's; its lock is that of the process
  about.json                  what is predicted: rows, draws, seed and model
  0000003.parquet             the fourth part: some complete blocks of rows
```

A part is renamed when it is complete. In the end all parts are copied to one file, a row group for
each, whose metadata says what was predicted.
"""

import contextlib
import io
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data.folders import claim
from ..errors import StoreError, describe
from .checked_files import as_store_error, read_json, write, write_json

ABOUT = "about.json"
METADATA = b"vcmc_predictions"  # the key in the file's metadata
SUFFIXES = (".parquet", ".pq")


def check_out(out: Any) -> Path:
    """Return the path of a file to write predictions to."""
    path = Path(out)
    if path.suffix not in SUFFIXES:
        raise ValueError(
            f'out must be a Parquet file, e.g. "predictions.parquet"; got {str(out)!r}.'
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"out must be in a folder that exists; there is no {path.parent}.")
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'predictions in files need pyarrow: pip install "vcmc[parquet]"'
        ) from error
    return path


@dataclass(frozen=True)
class PredictionFile:
    """A file of predictions, complete or not.

    Attributes:
        path: the file.
        about: what is predicted, as plain data.
    """

    path: Path
    about: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        """The folder of the parts."""
        return self.path.with_name(f".{self.path.name}.parts")

    def is_complete(self) -> bool:
        """Return whether the file holds these predictions; refuse a file that holds others."""
        if not self.path.exists():
            return False
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            metadata = pq.read_schema(self.path).metadata or {}
            before = json.loads(metadata[METADATA])
        except (pa.ArrowException, OSError, KeyError, ValueError):
            raise ValueError(
                f"out must be a new file; {self.path} exists, and vcmc.predict did not write it. "
                "Delete it, or choose another name."
            ) from None
        self._check_same(before, f"{self.path} holds other predictions")
        return True

    @contextlib.contextmanager
    def writing(self) -> Iterator[int]:
        """Lock the folder of parts, and return the number of those that are complete."""
        with claim(self.folder):
            try:
                before = read_json(self.folder / ABOUT)
            except (OSError, ValueError):
                for part in self.folder.glob("*.parquet"):  # nobody knows of what
                    part.unlink()
                write_json(self.folder / ABOUT, self._plain())
            else:
                self._check_same(before, f"{self.folder} holds parts of other predictions")
            number = 0
            while self._part(number).exists():
                number += 1
            yield number

    def write_part(self, number: int, columns: Mapping[str, np.ndarray]) -> None:
        """Write the predictions of some rows, in one step."""
        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        pq.write_table(_table(columns), buffer, write_page_checksum=True)
        write(self._part(number), buffer.getbuffer())

    def finish(self, num_parts: int) -> None:
        """Copy all parts to the file, and delete them."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        new = self.folder / "whole.new"
        with as_store_error(self.path):
            writer = None
            for number in range(num_parts):
                try:
                    table = pq.read_table(self._part(number), page_checksum_verification=True)
                except pa.ArrowException as error:
                    raise StoreError(
                        f"{self._part(number)} is damaged ({describe(error)}). Delete it and the "
                        "parts after it, and repeat the call."
                    ) from error
                if writer is None:
                    about = {METADATA: json.dumps(self._plain()).encode()}
                    writer = pq.ParquetWriter(
                        new, table.schema.with_metadata(about), write_page_checksum=True
                    )
                writer.write_table(table.replace_schema_metadata(writer.schema.metadata))
            assert writer is not None
            writer.close()
            os.replace(new, self.path)
        self.discard_parts()

    def discard_parts(self) -> None:
        """Delete the parts, which a process that was killed in the end may have left."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _part(self, number: int) -> Path:
        return self.folder / f"{number:07}.parquet"

    def _plain(self) -> dict[str, Any]:
        """Return what is predicted as it is read from a file."""
        return json.loads(json.dumps(dict(self.about)))

    def _check_same(self, before: Mapping[str, Any], text: str) -> None:
        now = self._plain()
        differing = [name for name in now if before.get(name) != now[name]]
        if differing:
            raise ValueError(
                f"{text}: {', '.join(differing)} differ. Delete it, or choose another out=."
            )


def _table(columns: Mapping[str, np.ndarray]) -> Any:
    import pyarrow as pa

    arrays = {}
    for name, values in columns.items():
        if values.ndim == 1:
            arrays[name] = pa.array(values)
        else:
            size = int(np.prod(values.shape[1:]))
            arrays[name] = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), size)
    return pa.table(arrays)
