"""The interface of experiments: steps with stored results, then a figure and its numbers.

To write one, subclass `AbstractExperiment`: `steps` returns the steps, each of which computes a few
arrays, and `finish` turns their results into tables and a figure. A finished step is not repeated,
so an interrupted experiment resumes where it stopped. Numbers that depend on the seed alone are
written as CSV; seconds, which differ between runs, go into the JSON file with the settings.
"""

import abc
import csv
import json
import os
import platform
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from .._runtime import num_cores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACKAGES = ("vcmc", "jax", "jaxlib", "numpyro", "numpy", "scipy")
WORK = "work"  # the subfolder with the results of steps
ELAPSED = "elapsed"  # name of the array with the seconds of a step

Arrays = Mapping[str, Any]


class Step(NamedTuple):
    """A computation whose result is stored.

    Attributes:
        name: name of the result's file.
        kind: steps of one kind take about equally long; the remaining time is estimated by it.
        make: computes arrays by name.
        folder: folder of the result.
    """

    name: str
    kind: str
    make: Callable[[], Arrays]
    folder: "Folder"


@dataclass(frozen=True)
class Folder:
    """A folder of results, one file each; incomplete files never have a result's name."""

    path: Path

    def has(self, name: str) -> bool:
        """Return whether a result exists."""
        return self._file(name).exists()

    def load(self, name: str, *only: str) -> dict[str, np.ndarray]:
        """Read a result, or only the named arrays of it."""
        try:
            with np.load(self._file(name)) as stored:
                return {key: stored[key] for key in only or stored}
        except (OSError, ValueError, EOFError, BadZipFile) as error:
            raise OSError(
                f"{self._file(name)} cannot be read ({error}): remove it, and run the experiment "
                "again."
            ) from error

    def save(self, name: str, arrays: Arrays) -> None:
        """Write a result, atomically."""
        self.path.mkdir(parents=True, exist_ok=True)
        unfinished = self._file(name).with_suffix(".unfinished.npz")
        np.savez(unfinished, **arrays)
        unfinished.replace(self._file(name))

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.npz"


@dataclass(frozen=True)
class Job:
    """Options of a run.

    Attributes:
        size: "small" or "paper".
        out: folder of figures and numbers; its subfolder `work` has the results of steps.
        seed: seed of data and draws.
        easiest: fraction of the test functions that count, those with the smallest errors.
    """

    size: str
    out: Path
    seed: int = 0
    easiest: float = 1.0

    def folder(self, name: str, settings: Mapping[str, Any]) -> Folder:
        """Return the folder of results for these settings; other settings have another folder."""
        text = json.dumps([version("vcmc"), self.seed, settings], sort_keys=True, default=repr)
        return Folder(self.out / WORK / f"{name}-{zlib.crc32(text.encode()):08x}")


class Results(NamedTuple):
    """Tables by the ends of their file names, settings with seconds, and the figure."""

    tables: Mapping[str, Sequence[Any]]
    settings: Mapping[str, Any]
    figure: "Figure"


class AbstractExperiment(abc.ABC):
    """A figure of the paper with its numbers; see the module's docstring for how to write one."""

    name: str
    title: str

    @abc.abstractmethod
    def steps(self, job: Job) -> list[Step]:
        """Return all steps, in order."""

    @abc.abstractmethod
    def finish(self, job: Job) -> Results:
        """Return tables, settings and figure from the results of all steps."""

    def run(self, job: Job, console: Console) -> list[Path]:
        """Run the unfinished steps, write figure, numbers and settings, and return the files."""
        job.out.mkdir(parents=True, exist_ok=True)  # first: hours of steps may follow
        if not os.access(job.out, os.W_OK):
            raise PermissionError(f"{job.out} is not writable: choose another folder with --out.")
        self._check_own_files(job)
        run_steps(self.name, self.steps(job), console)
        results = self.finish(job)
        stem = self.name if job.easiest == 1 else f"{self.name}-easiest-{round(100 * job.easiest)}"
        written = []
        for end, entries in results.tables.items():
            written.append(job.out / f"{stem}{end}.csv")
            write_table(written[-1], entries)
        written.append(job.out / f"{stem}.json")
        settings = {
            "experiment": self.name,
            "title": self.title,
            "size": job.size,
            "seed": job.seed,
        }
        written[-1].write_text(
            json.dumps(
                settings | dict(results.settings) | environment(), indent=1, default=_json_value
            )
            + "\n"
        )
        for suffix in ("png", "svg"):
            written.append(job.out / f"{stem}.{suffix}")
            metadata = {"Date": None} if suffix == "svg" else {}  # reproducible files
            results.figure.savefig(written[-1], dpi=110, metadata=metadata)
        return written

    def _check_own_files(self, job: Job) -> None:
        """Refuse a folder with files of these names but without the steps of an earlier run."""
        suffixes = (".csv", ".json", ".png", ".svg")
        files = [path for path in job.out.glob(f"{self.name}*") if path.suffix in suffixes]
        if files and not (job.out / WORK).exists():
            raise FileExistsError(
                f"{job.out} holds {files[0].name}, which vcmc did not write: there is no folder "
                f"{WORK}/. Choose another folder with --out."
            )


def run_steps(name: str, steps: Sequence[Step], console: Console) -> None:
    """Run the unfinished steps, and print an estimate of the remaining time after each."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for step in steps:
        if step.folder.has(step.name):
            seconds[step.kind].append(float(step.folder.load(step.name, ELAPSED)[ELAPSED]))
    todo = [step for step in steps if not step.folder.has(step.name)]
    columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as progress:
        task = progress.add_task(name, total=len(steps), completed=len(steps) - len(todo))
        for number, step in enumerate(todo):
            progress.update(task, description=f"{name}: {step.name}")
            begin = time.perf_counter()
            arrays = step.make()
            elapsed = time.perf_counter() - begin
            step.folder.save(step.name, {**arrays, ELAPSED: elapsed})
            seconds[step.kind].append(elapsed)
            progress.advance(task)
            left = time_left(todo[number + 1 :], seconds)
            console.print(f"{name}: {step.name}, {elapsed:.1f} s{left}", highlight=False)


def time_left(todo: Sequence[Step], seconds: Mapping[str, Sequence[float]]) -> str:
    """Estimate the time of steps from finished ones of their kind, or else from all."""
    if not todo:
        return ""
    pooled = [value for values in seconds.values() for value in values]
    left = sum(np.mean(seconds.get(step.kind) or pooled) for step in todo)
    return f"; about {left:.0f} s left" if left < 100 else f"; about {left / 60:.0f} min left"


def write_table(path: Path, entries: Sequence[Any]) -> None:
    """Write named tuples as CSV, numbers with four digits."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(entries[0]._fields)
        writer.writerows([_cell(value) for value in entry] for entry in entries)


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def environment() -> dict[str, Any]:
    """Return the date, the machine, and the versions of packages."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {
            "cores": num_cores(),
            "architecture": platform.machine(),
            "system": platform.system(),
        },
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
        "threads": os.environ.get("OPENBLAS_NUM_THREADS", "all"),
    }


def _json_value(value: Any) -> Any:
    """Convert a value that JSON does not support."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return repr(value)
