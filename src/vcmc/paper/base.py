"""What an experiment is: steps whose results are kept in a folder, and a figure with numbers made of them.

To write one, subclass `AbstractExperiment`: say its `steps`, each of which makes a few arrays, and in `finish` what becomes of
them. A step that was done is not done again, so that an interrupted experiment goes on where it was. What follows from the seed alone is
written as CSV; seconds, which no two runs share, go into the JSON file with the settings.
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
ELAPSED = "elapsed"  # the array of a step's result that holds its seconds

Arrays = Mapping[str, Any]


class Step(NamedTuple):
    """A piece of work whose result is kept.

    Attributes:
        name: what the file is called.
        kind: steps of a kind take about as long: what is left is estimated by it.
        make: makes arrays by name.
        folder: where they are kept.
    """

    name: str
    kind: str
    make: Callable[[], Arrays]
    folder: "Folder"


@dataclass(frozen=True)
class Folder:
    """Where the results of steps are kept: each a file, complete or not there."""

    path: Path

    def has(self, name: str) -> bool:
        """Whether a result is there."""
        return self._file(name).exists()

    def load(self, name: str, *only: str) -> dict[str, np.ndarray]:
        """A result, or only some of its arrays, without reading the others."""
        try:
            with np.load(self._file(name)) as stored:
                return {key: stored[key] for key in only or stored}
        except (OSError, ValueError, EOFError, BadZipFile) as error:
            raise OSError(
                f"{self._file(name)} cannot be read ({error}): remove it, and run the experiment again."
            ) from error

    def save(self, name: str, arrays: Arrays) -> None:
        """Keep a result; a half-written file never has its name."""
        self.path.mkdir(parents=True, exist_ok=True)
        unfinished = self._file(name).with_suffix(".unfinished.npz")
        np.savez(unfinished, **arrays)
        unfinished.replace(self._file(name))

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.npz"


@dataclass(frozen=True)
class Job:
    """How an experiment is to be run.

    Attributes:
        size: "small" or "paper".
        out: folder of figures and numbers; what steps make is kept in `work` inside.
        seed: seed of data and draws.
        easiest: share of the test functions that count, those with the smallest errors.
    """

    size: str
    out: Path
    seed: int = 0
    easiest: float = 1.0

    def folder(self, name: str, settings: Mapping[str, Any]) -> Folder:
        """Where the results of some settings are kept: other settings have another folder."""
        text = json.dumps([version("vcmc"), self.seed, settings], sort_keys=True, default=repr)
        return Folder(self.out / "work" / f"{name}-{zlib.crc32(text.encode()):08x}")


class Results(NamedTuple):
    """What an experiment found: rows of tables by the end of their file names, settings and seconds, and the figure."""

    tables: Mapping[str, Sequence[Any]]
    settings: Mapping[str, Any]
    figure: "Figure"


class AbstractExperiment(abc.ABC):
    """A figure of the paper, with its numbers. The module's docstring says how to write one."""

    name: str
    title: str

    @abc.abstractmethod
    def steps(self, job: Job) -> list[Step]:
        """All steps, in order."""

    @abc.abstractmethod
    def finish(self, job: Job) -> Results:
        """What all steps come to."""

    def run(self, job: Job, console: Console) -> list[Path]:
        """Do what is not done yet, and write the figure, its numbers and its settings; returns the files."""
        job.out.mkdir(
            parents=True, exist_ok=True
        )  # first, as a folder that cannot be written to is an error
        if not os.access(job.out, os.W_OK):
            raise PermissionError(
                f"{job.out} cannot be written to: choose another folder with --out."
            )
        do_steps(self.name, self.steps(job), console)
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
            json.dumps(settings | dict(results.settings) | machine(), indent=1, default=_plain)
            + "\n"
        )
        for suffix in ("png", "svg"):
            written.append(job.out / f"{stem}.{suffix}")
            metadata = {"Date": None} if suffix == "svg" else {}  # the same numbers, the same file
            results.figure.savefig(written[-1], dpi=110, metadata=metadata)
        return written


def do_steps(name: str, steps: Sequence[Step], console: Console) -> None:
    """Do the steps that are not done yet, saying how long the others will take."""
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
            made = step.make()
            elapsed = time.perf_counter() - begin
            step.folder.save(step.name, {**made, ELAPSED: elapsed})
            seconds[step.kind].append(elapsed)
            progress.advance(task)
            left = time_left(todo[number + 1 :], seconds)
            console.print(f"{name}: {step.name}, {elapsed:.1f} s{left}", highlight=False)


def time_left(todo: Sequence[Step], seconds: Mapping[str, Sequence[float]]) -> str:
    """How long steps will take, by those of their kind, or by all where there were none yet."""
    if not todo:
        return ""
    known = [each for of_kind in seconds.values() for each in of_kind]
    left = sum(np.mean(seconds.get(step.kind) or known) for step in todo)
    return f"; about {left:.0f} s left" if left < 100 else f"; about {left / 60:.0f} min left"


def write_table(path: Path, entries: Sequence[Any]) -> None:
    """Named tuples as CSV, numbers with four digits."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(entries[0]._fields)
        writer.writerows([_cell(value) for value in entry] for entry in entries)


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def machine() -> dict[str, Any]:
    """When and on what it was run."""
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


def _plain(value: Any) -> Any:
    """What JSON cannot say, in what it can."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return repr(value)
