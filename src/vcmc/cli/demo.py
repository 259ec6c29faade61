"""`vcmc demo`: a probit regression with a rare covariate, in shards and on the full data."""

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
    from matplotlib.axes import Axes
    from xarray import DataTree

NUM_ROWS, NUM_SHARDS = 8500, 20  # rows as in the paper's Figure 5
NAMES = ("intercept", "x1", "x2", "x3", "x4 (rare)")
PICTURE, SOFTWARE = "demo.png", "vcmc demo"  # the file, and what its metadata say
MAX_HEAD_BYTES = 1000  # of the file that hold them
PICTURED = (0, 4)  # coefficients in the picture: those on which consensus is farthest off
SHARD_COLOR, FULL_COLOR, CONSENSUS_COLOR, VCMC_COLOR = "0.72", "0.87", "#d95f02", "#1f6fb4"


@dataclass(frozen=True)
class Answer:
    """One method's draws, of shape (draw, coefficient), and the seconds it took."""

    draws: np.ndarray
    seconds: float

    @property
    def mean(self) -> np.ndarray:
        return self.draws.mean(axis=0)

    @property
    def sd(self) -> np.ndarray:
        return self.draws.std(axis=0)


def run_demo(folder: Path, seed: int, console: Console) -> None:
    """Sample, combine in three ways, compare with full-data NUTS; print a table, save a picture."""
    _check_picture(folder / PICTURE)
    rows = rare_covariate(seed, NUM_ROWS)
    model = Probit(5)
    console.print(
        f"Probit regression: {NUM_ROWS:,} rows, 5 coefficients. "
        f"x4 is 1 in only {int(rows['x'][:, 4].sum())} rows.\n"
        f"1. Running NUTS on {NUM_SHARDS} shards in parallel …"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulWarning)  # the verdicts are printed below
        partition = split(rows, NUM_SHARDS, seed=seed)
        sharded = infer(model, partition, seed=seed)
        console.print("2. Running NUTS on the full data, two chains, as the reference …")
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
        answers["vcmc"] = Answer(_draws(sharded), _seconds(sharded))
    console.print(_table(answers))
    console.print(
        f"The error estimate of vcmc, made without the reference chains:\n{diagnose(sharded)}"
    )
    for message in full.attrs["warnings"]:
        console.print(f"Warning about full-data NUTS: {message}")
    console.print(_summary(answers))
    console.print(_plot(answers, sharded["subposterior"]["beta"].to_numpy()[:, 0], folder))


def _draws(tree: "DataTree") -> np.ndarray:
    return tree["posterior"]["beta"].to_numpy().reshape(-1, 5)


def _seconds(tree: "DataTree") -> float:
    """Return the seconds until the draws existed; full-data NUTS needs no diagnosis."""
    stages = ("start", "compile", "sample", "combine")
    return sum(tree.attrs[f"seconds_{stage}"] for stage in stages)


def _errors(answer: Answer, reference: Answer) -> np.ndarray:
    return np.abs(answer.mean - reference.mean) / reference.sd


def _table(answers: Mapping[str, Answer]) -> Table:
    reference, *_ = answers.values()
    table = Table(caption="mean ± sd (error of the mean, in posterior sds)")
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
    largest = [f"{_errors(answer, reference).max():.2f} sd" for answer in answers.values()]
    table.add_row("largest error", "", *largest[1:])
    table.add_row("seconds", *(f"{answer.seconds:.1f}" for answer in answers.values()))
    return table


def _summary(answers: Mapping[str, Answer]) -> str:
    reference, *others = answers.values()
    errors = [_errors(answer, reference).max() for answer in others]
    best = list(answers)[1 + int(np.argmin(errors))]
    return (
        f"Closest to full-data NUTS: {best}, within {min(errors):.2f} posterior sds. "
        "The seconds include compilation, not the error estimate. "
        "Here all shards share this machine's cores; "
        "on a cluster each shard has its own."
    )


def _check_picture(path: Path) -> None:
    """Refuse to overwrite a picture that is not an earlier demo's."""
    if path.exists():
        with path.open("rb") as file:
            if SOFTWARE.encode() not in file.read(MAX_HEAD_BYTES):
                raise FileExistsError(
                    f"{path} exists and was not written by vcmc. Choose another folder with --out."
                )


def _plot(answers: Mapping[str, Answer], shards: np.ndarray, folder: Path) -> str:
    """Save the densities of two coefficients; return the path, or what to install."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        return "No picture: matplotlib is not installed. Try: pip install 'vcmc[plots]'"

    figure = Figure(figsize=(10, 4.2), layout=ConstrainedLayoutEngine(wspace=0.06))
    for axes, index in zip(figure.subplots(1, len(PICTURED)), PICTURED, strict=True):
        _plot_coefficient(axes, answers, shards, index)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=12)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PICTURE
    figure.savefig(path, dpi=150, metadata={"Software": SOFTWARE})
    return f"Picture: {path}"


def _plot_coefficient(
    axes: "Axes", answers: Mapping[str, Answer], shards: np.ndarray, index: int
) -> None:
    """Draw one coefficient: shards, full data, consensus and vcmc, the errors as labels."""
    from scipy.stats import gaussian_kde

    full, consensus, ours = (answers[name] for name in ("full-data NUTS", "consensus", "vcmc"))
    centre, spread = full.mean[index], full.sd[index]
    grid = np.linspace(centre - 8 * spread, centre + 8 * spread, 400)

    def density(draws: np.ndarray) -> np.ndarray:  # wide enough to hide Monte Carlo bumps
        return gaussian_kde(draws, bw_method=0.35)(grid)

    for number, shard in enumerate(shards[:, :, index]):
        label = f"{len(shards)} shards" if number == 0 else None
        axes.plot(grid, density(shard), color=SHARD_COLOR, linewidth=0.8, label=label)
    truth = density(full.draws[:, index])
    axes.fill_between(grid, truth, facecolor=FULL_COLOR, edgecolor="black", label="full-data NUTS")
    curves = ((consensus, CONSENSUS_COLOR, "consensus"), (ours, VCMC_COLOR, "vcmc"))
    for answer, color, name in curves:
        curve = density(answer.draws[:, index])
        axes.plot(grid, curve, color=color, linewidth=2.5, label=name)
        side = np.sign(answer.mean[index] - ours.mean[index]) or -np.sign(
            consensus.mean[index] - ours.mean[index]
        )
        axes.annotate(
            f"{name}\n{_errors(answer, full)[index]:.2f} sd off",
            (grid[np.argmax(curve)], 0.88 * curve.max()),
            xytext=(26 * side, 0),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="center",
            color=color,
            fontsize=13,
            fontweight="bold",
        )
    axes.set_title(f"coefficient of {NAMES[index]}" if index else NAMES[index], fontsize=14)
    axes.set(yticks=[], ylim=(0, None), xlim=(grid[0], grid[-1]))
    axes.tick_params(labelsize=12)
    axes.spines[["left", "top", "right"]].set_visible(False)
