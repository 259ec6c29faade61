"""Compare the run that a directory holds with the one that is asked for, and say what differs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import StoreError

ARGUMENTS = ("seed", "num_shards", "shard_draws", "thin", "prior", "weights", "sampler")
# What is wrong with a model, by the setting that differs
MODEL_PARTS = {
    "log_prior": "its log prior differs",
    "log_likelihood": "its log likelihood differs",
    "derived": "its derived quantities differ",
}


def check_agreement(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise `StoreError` unless the recorded run can be continued with the settings `now`.

    More draws than recorded are allowed.
    """
    differences = (
        _argument_differences(before, now)
        or model_differences(before, now)
        or _row_differences(before, now)
    )
    if differences:
        raise StoreError(
            f"{folder} holds another run: {'; '.join(differences)}. Use another folder, or repeat "
            "the original call to resume that run."
        )


def _argument_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    texts = []
    for name in ARGUMENTS:
        if name not in now or now[name] == before.get(name):
            continue
        if name == "shard_draws" and now[name] > before.get(name, 0):
            continue
        text = f"{name}: the run has {before.get(name)}, given {now[name]}"
        is_shorter = name == "shard_draws"
        texts.append(text + (" (a run can be extended, not shortened)" if is_shorter else ""))
    return texts


def model_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what differs between two models, by their names, spaces and values at some points."""
    if before.get("model") != now["model"]:
        return [f"the model has changed: the run has {before.get('model')}, given {now['model']}"]
    if before.get("space") != now["space"]:
        return [
            "the model has changed (the spaces of its parameters differ): the run has "
            f"{before.get('space')}, given {now['space']}"
        ]
    parts = [name for name in MODEL_PARTS if before.get(name) != now[name]]
    if "log_likelihood" in parts and before["shards"][:1] != now["shards"][:1]:
        parts.remove("log_likelihood")  # it was evaluated on other rows
    if not parts:
        return []
    return [f"the model has changed ({', '.join(MODEL_PARTS[name] for name in parts)})"]


def _row_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    pairs = enumerate(zip(before["shards"], now["shards"], strict=True))
    changed = [shard for shard, (old, new) in pairs if old != new]
    if not changed:
        return []
    differ = "differs" if len(changed) == 1 else "differ"
    return [
        f"the rows have changed ({len(changed)} of {len(now['shards'])} shards {differ}; the "
        f"first is shard {changed[0]})"
    ]
