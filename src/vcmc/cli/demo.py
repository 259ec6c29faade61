"""`vcmc demo`: a probit regression with a rare covariate, in shards and in one piece."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from ..aggregators import BlockFamily
from ..combiners import Consensus, Variational
from ..data.partition import split
from ..errors import DoubtfulWarning
from ..inference.combination import combine
from ..inference.diagnosis import diagnose
from ..inference.pipeline import infer
from ..models.regression import Probit, rare_covariate
from ..samplers import NUTS

if TYPE_CHECKING:
    from xarray import DataTree

NUM_ROWS, NUM_SHARDS = 8500, 20
NAMES = ("intercept", "x1", "x2", "x3", "x4 (rare)")


@dataclass(frozen=True)
class Answer:
    """What one method says: draws (draw, coefficient), and the seconds it took."""

    draws: np.ndarray
    seconds: float

    @property
    def mean(self) -> np.ndarray:
        return self.draws.mean(axis=0)

    @property
    def sd(self) -> np.ndarray:
        return self.draws.std(axis=0)


def run_demo(folder: Path, seed: int, console: Console) -> None:
    """Sample, combine in three ways, and compare with full-data NUTS: a table and a picture."""
    rows = rare_covariate(seed, NUM_ROWS)
    model = Probit(5)
    console.print(
        f"Probit regression, {NUM_ROWS} rows, 5 coefficients; x4 is 1 in "
        f"{int(rows['x'][:, 4].sum())} rows only.\n"
        f"1. {NUM_SHARDS} shards, NUTS on all of them at once"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulWarning)  # printed below, in the trees' own words
        partition = split(rows, NUM_SHARDS, seed=seed)
        sharded = infer(model, partition, seed=seed)
        console.print("2. all rows in one piece, NUTS, two chains")
        full = infer(model, rows, num_shards=1, seed=seed, sampler=NUTS(num_chains=2))
        shard_seconds = _seconds(sharded) - sharded.attrs["seconds_combine"]
        answers = {"full-data NUTS": Answer(_draws(full), _seconds(full))}
        methods = {
            "consensus": Consensus(),
            "the paper's": Variational(BlockFamily()),
        }
        for name, combiner in methods.items():
            tree = combine(sharded, combiner=combiner, model=model, rows=partition)
            answers[name] = Answer(_draws(tree), shard_seconds + tree.attrs["seconds_combine"])
        answers["vcmc"] = Answer(_draws(sharded), shard_seconds + sharded.attrs["seconds_combine"])
    console.print(_table(answers))
    console.print(f"What vcmc says of itself, without full-data NUTS:\n{diagnose(sharded)}")
    for note in full.attrs["warnings"]:
        console.print(f"Doubtful in full-data NUTS: {note}")
    console.print(_verdict(answers))
    console.print(_plot(answers, sharded["subposterior"]["beta"].to_numpy()[:, 0], folder))


def _draws(tree: "DataTree") -> np.ndarray:
    return tree["posterior"]["beta"].to_numpy().reshape(-1, 5)


def _seconds(tree: "DataTree") -> float:
    """Seconds until draws were there; what was spent on judging them is not counted, as full-data NUTS needs none of it."""
    return sum(
        tree.attrs[f"seconds_{stage}"] for stage in ("start", "compile", "sample", "combine")
    )


def _errors(answer: Answer, reference: Answer) -> np.ndarray:
    return np.abs(answer.mean - reference.mean) / reference.sd


def _table(answers: Mapping[str, Answer]) -> Table:
    reference, *_ = answers.values()
    table = Table(caption="mean ± sd; in brackets: the mean's error in posterior sds")
    table.add_column("")
    for name in answers:
        table.add_column(name, justify="right", no_wrap=True)
    for index, coefficient in enumerate(NAMES):
        cells = [f"{a.mean[index]:.3f} ± {a.sd[index]:.3f}" for a in answers.values()]
        errors = [f" ({_errors(a, reference)[index]:.2f})" for a in answers.values()]
        table.add_row(
            coefficient, cells[0], *(c + e for c, e in zip(cells[1:], errors[1:], strict=True))
        )
    table.add_section()
    worst = [f"{_errors(answer, reference).max():.2f} sd" for answer in answers.values()]
    table.add_row("largest error", "", *worst[1:])
    table.add_row("seconds", *(f"{answer.seconds:.1f}" for answer in answers.values()))
    return table


def _verdict(answers: Mapping[str, Answer]) -> str:
    reference, *others = answers.values()
    errors = [_errors(answer, reference).max() for answer in others]
    best = list(answers)[1 + int(np.argmin(errors))]
    return (
        f"Closest to full-data NUTS: {best}, at most {min(errors):.2f} posterior sds off. The seconds "
        "contain compilation; all shards share this machine's cores, and each would run alone on a cluster."
    )


def _plot(answers: Mapping[str, Answer], shards: np.ndarray, folder: Path) -> str:
    """Densities of every coefficient; returns where the picture is, or what to install."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "No picture: matplotlib is not installed. Try: pip install 'vcmc[plots]'"
    from scipy.stats import gaussian_kde

    figure = Figure(figsize=(15, 3.6), layout="constrained")
    colours = ("black", "tab:orange", "tab:green", "tab:blue")
    for index, axes in enumerate(figure.subplots(1, 5)):
        every = np.concatenate([answer.draws[:, index] for answer in answers.values()])
        margin = 0.6 * np.ptp(every)
        grid = np.linspace(every.min() - margin, every.max() + margin, 300)
        for shard in shards[:, :, index]:
            axes.plot(grid, gaussian_kde(shard)(grid), color="0.8", linewidth=0.7)
        for (name, answer), colour in zip(answers.items(), colours, strict=True):
            density = gaussian_kde(answer.draws[:, index])(grid)
            width = 2.5 if colour == "black" else 1.5
            axes.plot(grid, density, color=colour, linewidth=width, label=name)
        axes.set(title=NAMES[index], yticks=[], ylim=(0, None))
        axes.spines[["left", "top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    handles += axes.lines[:1]
    figure.legend(handles, [*labels, "single shards"], loc="outside lower center", ncols=5)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "demo.png"
    figure.savefig(path, dpi=120)
    return f"Picture: {path}"
