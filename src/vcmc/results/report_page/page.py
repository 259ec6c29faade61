"""Write the report page from the template, styles and scripts of this folder."""

import contextlib
import html
import json
import os
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..group_summaries import group_sizes
from ..quantities import local_names
from .check_contents import check_contents, loo_contents
from .contents import contents
from .mode_contents import mode_table

if TYPE_CHECKING:
    from arviz_stats import ELPDData
    from xarray import DataTree

    from ..posterior_checks import PosteriorCheck

SCRIPTS = (  # in this order
    "elements.js",
    "charts.js",
    "groups.js",
    "checks.js",
    "updates.js",
    "page.js",
)
HIDDEN_ATTRIBUTES = (  # prefixes of attributes that are shown elsewhere, or are internal
    "verdict",
    "warnings",
    "seconds_",
    "shard_sizes",
    "can_be_refined",
    "space",
    "shard_warnings",
    "exact",
)
GENERATOR = b'<meta name="generator" content="vcmc">'  # at the beginning of every page
MAX_HEAD_BYTES = 1000  # that hold it
# The data stand inside a script element, which `</script>` would end and `<!--<script>` would not
# let end. In JSON these characters are in strings only.
ESCAPED = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&"})
SIGNS = {"good": "✓", "doubtful": "?", "poor": "✗", "unknown": "–", "unfinished": "…"}


def report(
    tree: "DataTree",
    path: str | Path,
    *,
    title: str = "Combined posterior",
    command: str = "",
    checks: "PosteriorCheck | Sequence[PosteriorCheck]" = (),
    loo: "ELPDData | None" = None,
) -> Path:
    """Write a page about a result: one HTML file below 2 MB, which needs no network.

    The page has the verdict, a table of all parameters with their estimated errors, charts and a
    table of the groups if the model has any, the shards against the combined posterior, the shards
    that disagree, the objective, diagnostics and timings of the shards, and the settings. With
    `checks` and `loo`, it has sections on the model: whether replicated data are like the data,
    and how well it predicts rows.

    Args:
        tree: a result of `infer`, `combine`, `refine` or `load`.
        path: the file to write; its folder is created if needed. Of existing files, only a report
            is overwritten.
        title: the heading.
        command: the command that made the result, shown beside its settings.
        checks: results of `posterior_check`.
        loo: a result of `loo`, whose worst rows are listed.

    Returns:
        The path.
    """
    if not getattr(tree, "children", None):
        raise TypeError(
            f"tree must be a result of infer, combine, refine or load; got {type(tree).__name__}."
        )
    path = Path(path)
    if not isinstance(title, str):
        raise TypeError(f"title must be a text, e.g. title='Wells'; got {title!r}.")
    about_model = {"checks": check_contents(checks), "loo": loo_contents(loo)}
    text = page(tree, title, command, about_model)
    if path.exists() and GENERATOR not in _head(path):
        raise OSError(
            f"{path} exists and is not a report of vcmc: it is not overwritten. Delete it, or "
            "choose another name."
        )
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text, encoding="utf-8", errors="backslashreplace")
        new.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink()
        raise OSError(
            f"the report cannot be written to {path}: {error.strerror}. Try another folder."
        ) from None
    return path


def page(tree: "DataTree", title: str, command: str, about_model: dict[str, Any]) -> str:
    """Return the HTML of the page, with the contents of sections on the model."""
    data = json.dumps(contents(tree) | about_model, separators=(",", ":"), allow_nan=False)
    level = _level(tree)
    parts = {
        "title": html.escape(title),
        "style": _read("page.css"),
        "script": "\n".join(map(_read, SCRIPTS)),
        "data": data.translate(ESCAPED),
        "level": level,
        "sign": SIGNS[level],
        "verdict": _verdict(tree) + mode_table(tree),
        "facts": _facts(tree),
        "settings": _settings(tree, command),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read("page.html"))


def _head(path: Path) -> bytes:
    """Return the beginning of a file; nothing of what is not a file or cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_HEAD_BYTES)
    except OSError:
        return b""


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _level(tree: "DataTree") -> str:
    if "posterior" not in tree.children:
        return "unfinished"
    level = str(tree.attrs.get("verdict", "unknown"))
    return level if level in SIGNS else "unknown"


def _texts(attribute: Any) -> list[str]:
    """Return a list of texts, which a file may have stored as one text or as an array."""
    return [attribute] if isinstance(attribute, str) else [str(text) for text in attribute]


def _verdict(tree: "DataTree") -> str:
    """Return the verdict in a sentence, followed by the reasons."""
    text = str(tree.attrs.get("verdict_text", ""))
    reasons = [reason for reason in _texts(tree.attrs.get("verdict_reasons", [])) if reason]
    if _level(tree) == "unfinished":
        text = "The run is not finished: the shards are not combined yet."
        reasons = _texts(tree.attrs.get("warnings", []))
    if not text:
        text = (
            "The accuracy of the result is unknown: it was not diagnosed. "
            "Try vcmc.diagnose(tree, model, rows)."
        )
    for reason in reasons:
        text = text.replace(reason, "", 1)
    text = " ".join(text.split())
    items = "".join(
        f"<li>{html.escape(reason[:1].upper() + reason[1:])}</li>" for reason in reasons
    )
    return f"<p>{html.escape(text)}</p>" + (f"<ul>{items}</ul>" if items else "")


def _facts(tree: "DataTree") -> str:
    """Return the key figures: sizes and times."""
    attributes = tree.attrs
    facts: dict[str, str] = {}
    if "shard_sizes" in attributes:
        num_rows = int(np.sum(attributes["shard_sizes"]))
        facts["rows"] = _spaced(num_rows)
    if "num_shards" in attributes:
        num_shards = int(attributes["num_shards"])
        facts["shard" if num_shards == 1 else "shards"] = _spaced(num_shards)
    if "posterior" in tree.children:
        posterior = tree["posterior"]
        facts["combined draws"] = _spaced(posterior.sizes["chain"] * posterior.sizes["draw"])
        local = set(local_names(tree))
        num_elements = sum(
            values[0, 0].size for name, values in posterior.data_vars.items() if name not in local
        )
        facts["global parameters" if "groups" in attributes else "parameters"] = _spaced(
            num_elements
        )
        if (num_groups := _num_groups(tree)) is not None:
            facts["groups"] = _spaced(num_groups)
    seconds = [
        float(value) for name, value in attributes.items() if str(name).startswith("seconds_")
    ]
    if seconds:
        facts["total time"] = _duration(sum(seconds))
    if "sample_seconds" in tree.children:
        begin, end = (tree["sample_seconds"][name].to_numpy() for name in ("begin", "end"))
        facts["slowest shard"] = _duration(float((end - begin).max()))
    return "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>"
        for name, value in facts.items()
    )


def _num_groups(tree: "DataTree") -> int | None:
    sizes = group_sizes(tree)
    return None if sizes is None else len(sizes)


def _spaced(count: int) -> str:
    """Return a number with narrow spaces between thousands."""
    return f"{count:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def _settings(tree: "DataTree", command: str) -> str:
    """Return a table of the settings, preceded by the command that repeats the run."""
    lines = "".join(
        f"<tr><th scope=row>{html.escape(str(name))}</th><td>{html.escape(_text(value))}</td></tr>"
        for name, value in tree.attrs.items()
        if not str(name).startswith(HIDDEN_ATTRIBUTES) and np.size(value) and str(value)
    )
    repeat = (
        f"<p>To repeat the run:</p><pre tabindex=0><code>{html.escape(command)}</code></pre>"
        if command
        else ""
    )
    return (
        f"{repeat}<div class=scroll tabindex=0 role=region aria-label=settings>"
        f"<table class=settings>{lines}</table></div>"
    )


def _text(value: Any) -> str:
    if isinstance(value, list | tuple | np.ndarray):
        return ", ".join(map(str, value))
    return " ".join(str(value).split())
