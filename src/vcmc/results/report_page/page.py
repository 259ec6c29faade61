"""Write the report page: a template, a style and a script of this folder, with a result's numbers inside."""

import html
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .contents import contents

if TYPE_CHECKING:
    from xarray import DataTree

LEFT_OUT = (
    "verdict",
    "warnings",
    "seconds_",
    "shard_sizes",
    "can_be_refined",
    "curved",
    "shard_warnings",
)
SIGNS = {"good": "✓", "doubtful": "?", "poor": "✗", "unknown": "–", "unfinished": "…"}


def report(
    tree: "DataTree", path: str | Path, *, title: str = "A posterior from shards", command: str = ""
) -> Path:
    """Write a page about a result: one HTML file below 2 MB, which needs no network.

    It has the verdict, a table of all numbers with their estimated errors, the shards against what was combined, the shards
    that disagree, the objective, how each shard was sampled and when, and the settings.

    Args:
        tree: what `infer`, `combine`, `refine` or `load` returned.
        path: the file to write.
        title: a heading.
        command: what made the result, to be shown beside its settings.

    Returns:
        The path.
    """
    if not getattr(tree, "children", None):
        raise TypeError(
            f"tree must be what infer, combine, refine or load returned; got {type(tree).__name__}."
        )
    path = Path(path)
    text = page(tree, title, command)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OSError(
            f"the report cannot be written to {path}: {error.strerror}. Try another folder."
        ) from None
    return path


def page(tree: "DataTree", title: str, command: str = "") -> str:
    """The page's text."""
    parts = {
        "title": html.escape(title),
        "style": _part("page.css"),
        "script": _part("page.js"),
        "data": json.dumps(contents(tree), separators=(",", ":"), allow_nan=False).replace(
            "</", "<\\/"
        ),
        "level": _level(tree),
        "sign": SIGNS[_level(tree)],
        "verdict": _verdict(tree),
        "facts": _facts(tree),
        "settings": _settings(tree, command),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _part("page.html"))


def _part(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _level(tree: "DataTree") -> str:
    if "posterior" not in tree.children:
        return "unfinished"
    level = str(tree.attrs.get("verdict", "unknown"))
    return level if level in SIGNS else "unknown"


def _texts(found: Any) -> list[str]:
    return [found] if isinstance(found, str) else [str(each) for each in found]


def _verdict(tree: "DataTree") -> str:
    """The verdict in a sentence, then the reasons."""
    level, attributes = _level(tree), tree.attrs
    said = str(attributes.get("verdict_text", ""))
    reasons = [each for each in _texts(attributes.get("verdict_reasons", [])) if each]
    if level == "unfinished":
        said, reasons = (
            "The run is not finished: nothing was combined yet.",
            _texts(attributes.get("warnings", [])),
        )
    if not said:
        said = "How good the result is, was not judged when it was made."
    for reason in reasons:
        said = said.replace(reason, "", 1)
    sentences = " ".join(said.split())
    listed = "".join(
        f"<li>{html.escape(reason[:1].upper() + reason[1:])}</li>" for reason in reasons
    )
    return f"<p>{html.escape(sentences)}</p>" + (f"<ul>{listed}</ul>" if listed else "")


def _facts(tree: "DataTree") -> str:
    """A few large numbers."""
    attributes = tree.attrs
    facts: dict[str, str] = {}
    if "shard_sizes" in attributes:
        facts["rows"] = f"{int(np.sum(attributes['shard_sizes'])):,}".replace(
            ",", "\N{NARROW NO-BREAK SPACE}"
        )
    if "num_shards" in attributes:
        facts["shards"] = str(attributes["num_shards"])
    if "posterior" in tree.children:
        sizes = tree["posterior"].sizes
        facts["combined draws"] = str(sizes["chain"] * sizes["draw"])
        facts["numbers"] = str(
            sum(values[0, 0].size for values in tree["posterior"].data_vars.values())
        )
    seconds = [
        float(value) for name, value in attributes.items() if str(name).startswith("seconds_")
    ]
    if seconds:
        facts["time"] = _time(sum(seconds))
    if "sample_seconds" in tree.children:
        took = tree["sample_seconds"]["end"].to_numpy() - tree["sample_seconds"]["begin"].to_numpy()
        facts["slowest shard"] = _time(float(took.max()))
    return "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>"
        for name, value in facts.items()
    )


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def _settings(tree: "DataTree", command: str) -> str:
    """A table of settings, and what to type to repeat the run."""
    kept: Mapping[str, Any] = {
        str(name): value for name, value in tree.attrs.items() if not str(name).startswith(LEFT_OUT)
    }
    lines = "".join(
        f"<tr><th scope=row>{html.escape(name)}</th><td>{html.escape(_shown(value))}</td></tr>"
        for name, value in kept.items()
    )
    repeat = (
        f"<p>To repeat it:</p><pre tabindex=0><code>{html.escape(command)}</code></pre>"
        if command
        else ""
    )
    return f"{repeat}<div class=scroll tabindex=0 role=region aria-label=settings><table class=settings>{lines}</table></div>"


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple | np.ndarray):
        return ", ".join(map(str, value))
    return " ".join(str(value).split())
