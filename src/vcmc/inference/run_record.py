"""What a run directory records of a run, so that only the same run is resumed or loaded.

A run is identified by numbers: its settings, checksums of its shards, and the model's log prior and
log likelihood at a few points. Pickled code would differ without a change.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._runtime import thread_map
from ..data.cache import ShardCache, Task
from ..data.grouped import GroupedPartition
from ..data.labels import Labels
from ..data.shard import Shard
from ..data.space_description import describe_space
from ..errors import StoreError, warn_doubtful
from ..results.agreement import check_agreement
from ..results.local_files import identity_of
from ..results.store import LOCAL_DRAWS, Groups, Store
from ..results.tree import build_tree
from ..samplers import Independence
from ..space import Point
from ..target import Target

if TYPE_CHECKING:
    from xarray import DataTree

    from .chains import Plan
    from .request import Request

NUM_POINTS = 3  # at which the model's log density is recorded
DIGITS = 10  # of log densities, which other machines round otherwise


@dataclass(frozen=True)
class RunRecord:
    """The run directory of a run, and what the run is.

    Attributes:
        store: the run directory.
        settings: the identity of the run, without the sampler that vcmc chooses.
        request: the arguments that only the result depends on.
        stored: the settings that the run directory has, if it has a run.
        labels: the dims and coords of the model's parameters.
    """

    store: Store
    settings: dict[str, Any]
    request: dict[str, Any]
    stored: dict[str, Any] | None
    labels: Labels

    @classmethod
    def opened(
        cls, target: Target, request: "Request", options: Mapping[str, Any]
    ) -> "RunRecord | None":
        """Compare a run with the one in its directory; raise `StoreError` if they differ.

        Return None if the run has no directory.
        """
        store = request.store
        if store is None:
            return None
        stored = store.settings()
        arguments: dict[str, Any] = {
            "seed": request.seed,
            "num_shards": target.num_shards,
            "thin": request.thin,
            "prior": request.prior,
            "weights": request.weights,
        }
        if request.shard_draws is not None:
            arguments["shard_draws"] = request.shard_draws
        if request.sampler is not None:
            arguments["sampler"] = describe_part(request.sampler)
        if stored:  # before the rows are read
            check_agreement(store.folder, stored, {**stored, **arguments})
        settings = arguments | model_settings(target, request.seed)
        settings["shards"] = checksums(target)
        if stored:
            check_agreement(store.folder, stored, settings)
        answer = {
            **options,
            "num_draws": request.num_draws,
            "shard_draws": request.shard_draws,
            "error": request.error,
            "combiner": describe_part(request.combiner),
            "is_own_combiner": _is_own(request.combiner),
            "labels": _digest_of_text(target.model.labels),
            "group_labels": _digest_of_groups(target),
            "vcmc": version("vcmc"),
        }
        return cls(store, settings, answer, stored, target.model.labels)

    def result(self) -> "DataTree | None":
        """Return the stored result of the same request, if there is one, with its warnings."""
        loaded = self.store.load_tree() if self.stored else None
        if loaded is None or not self.request["is_own_combiner"]:
            return None
        groups, attributes, request = loaded
        if LOCAL_DRAWS in attributes and not self.store.locals.is_complete():
            return None  # files were deleted: they are made again
        had_sampler = request.pop("sampler")
        if request != self.request or (had_sampler and "sampler" not in self.settings):
            return None  # without an argument, which sampler vcmc chooses is not known yet
        warn_doubtful(attributes["warnings"])
        return build_tree(groups, attributes)

    def continued(self, request: "Request") -> "Request":
        """Return the request of a run that goes on with the kind of sampler that it has."""
        if not self.stored:
            return request
        is_independent = self.stored["sampler"].startswith(Independence.__name__)
        return dataclasses.replace(request, was_independent=is_independent)

    def record(self, plan: "Plan") -> int:
        """Write the identity of the run; if the directory has one, it must have this sampler.

        Return the number of draws of every chain: where the library chooses it, a run that has
        been extended keeps its larger number.
        """
        settings = self.settings | {"sampler": describe_part(plan.sampler)}
        shard_draws = plan.num_draws
        if self.stored:
            check_agreement(self.store.folder, self.stored, settings)
            if "shard_draws" not in self.settings:
                shard_draws = max(shard_draws, int(self.stored["shard_draws"]))
        self.extend(plan, shard_draws)
        return shard_draws

    def extend(self, plan: "Plan", shard_draws: int) -> None:
        """Record the number of draws that chains will have."""
        settings = self.settings | {
            "sampler": describe_part(plan.sampler),
            "shard_draws": shard_draws,
            "num_chains": plan.sampler.num_chains,
        }
        self.store.record(settings, self.labels.groups)

    def save(self, groups: Groups, tree: "DataTree") -> None:
        """Write the result; raise a `StoreError` that carries it if it cannot be written."""
        try:
            request = self.request | {"sampler": "sampler" in self.settings}
            self.store.save_tree(groups, tree.attrs, request)
            self.store.locals.discard_parts()
        except StoreError as error:
            raise StoreError(f"{error} The result is in this error's `tree`.", tree) from error


def describe_part(part: Any) -> str:
    """Return a text that identifies a sampler or a combiner, with the numbers in its arrays.

    >>> import vcmc
    >>> describe_part(vcmc.samplers.HMC(num_warmup=40))
    'HMC(num_warmup=40)'
    """
    arrays = [leaf for leaf in jax.tree.leaves(part) if isinstance(leaf, np.ndarray | jax.Array)]
    if not arrays:
        return repr(part)
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return f"{part!r} with arrays {digest.hexdigest()}"


def _digest_of_text(labels: Labels) -> str:
    texts = {
        f"{group}/{name}": [str(value) for value in values.tolist()]
        for group, arrays in labels.groups.items()
        for name, values in arrays.items()
    }
    text = json.dumps(texts, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _digest_of_groups(target: Target) -> str:
    """Return a hash of the labels of groups, which the checksums of shards do not contain."""
    partition = target.shard_cache.partition
    return identity_of(partition.labels) if isinstance(partition, GroupedPartition) else ""


def _is_own(part: Any) -> bool:
    """Return whether a part, and those in it, are vcmc's own; the code of others may change."""
    if dataclasses.is_dataclass(part):
        fields = [getattr(part, field.name) for field in dataclasses.fields(part)]
        return type(part).__module__.partition(".")[0] == "vcmc" and all(map(_is_own, fields))
    if isinstance(part, Mapping | tuple | list):
        return all(map(_is_own, part.values() if isinstance(part, Mapping) else part))
    return part is None or isinstance(part, bool | int | float | str | np.ndarray | jax.Array)


def model_settings(target: Target, seed: int) -> dict[str, Any]:
    """Return what identifies a model: its spaces, and its values at a few points."""
    model, shard = target.model, target.pilot.shard
    key = jax.random.fold_in(jax.random.key(seed), 0)
    # in NumPy: JAX would compile programs to multiply and to iterate
    points = 0.5 * np.asarray(jax.random.normal(key, (NUM_POINTS, model.space.dim)))

    def values(point: Point, shard: Shard) -> tuple[Array, Array, dict[str, Array]]:
        derived = model.derived(model.space.constrain(point)) if model.derived else {}
        sums = {name: jnp.sum(value) for name, value in derived.items()}
        return model.log_prior_at(point), model.log_likelihood_at(point, shard), sums

    evaluate = jax.jit(values)  # one program: compiling every operation takes longer
    priors, likelihoods, derived = zip(*(evaluate(point, shard) for point in points), strict=True)
    return {
        "model": repr(model),
        "space": describe_space(model.space),
        "log_prior": [_digits(value) for value in priors],
        "log_likelihood": [_digits(value) for value in likelihoods],
        "derived": [{name: _digits(sums[name]) for name in sorted(sums)} for sums in derived],
    }


def _digits(value: Any) -> str:
    return f"{float(value):.{DIGITS}g}"


def checksums(target: Target) -> list[str]:
    """Return the checksums of the shards, computed where their rows are."""
    tasks = [Task((shard,)) for shard in range(target.num_shards)]
    shard_cache = target.shard_cache
    if shard_cache.partition.in_memory:
        return list(thread_map(lambda task: _checksum(shard_cache, task), tasks))
    return list(target.executor.map(_checksum, tasks, shard_cache))


def _checksum(
    shard_cache: ShardCache, task: Task, advance: Callable[[int], None] | None = None
) -> str:
    del advance
    return shard_cache.shard(task.shards[0]).checksum()
