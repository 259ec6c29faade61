"""States of a run directory, with the rows and draws of their shards."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.files import FilePartition
from ..data.row_digest import RowDigest, row_digest
from ..data.shard import AbstractPartition
from ..data.shard_list import BatchShard
from ..errors import StoreError
from ..executors import AbstractExecutor
from ..model import Model
from ..results.agreement import model_differences
from ..results.blocks import join_blocks
from ..results.states import ORIGINAL, History, ShardName, State
from ..results.store import Groups, Store
from ..samplers.base import Chain, group_by_walker
from ..target import Target
from .batch_plan import EarlierShard
from .kept_rows import batch_shards, kept_partition, write_partition
from .model_rows import model_rows
from .partitioning import as_partition
from .run_record import checksums, model_settings
from .update_stages import target_of

if TYPE_CHECKING:
    from xarray import DataTree

KEPT = ("seed", "thin", "prior", "weights", "num_draws")  # arguments that updates repeat


@dataclass(frozen=True)
class RunHistory:
    """A run directory whose posterior is updated.

    Attributes:
        history: its states.
        model: the model, as it is given now.
        executor: where the model is evaluated.
    """

    history: History
    model: Model
    executor: AbstractExecutor

    @property
    def folder(self) -> Any:
        """The run directory."""
        return self.history.store.folder

    def state(self) -> State:
        """Return the current state, whose model must be the one that is given."""
        if self.history.is_plain():
            return self._original()
        state = self.history.state(self.history.current)
        self._check_model(state.model, self.identity(state))
        return state

    def adopt(self, rows: Any) -> None:
        """Write the rows of the run to its directory, which does not have them."""
        store = self.history.store
        settings = store.settings()
        if settings is None:
            return
        weights, seed = settings["weights"], settings["seed"]
        number = None if isinstance(rows, AbstractPartition) else settings["num_shards"]
        partition = as_partition(
            model_rows(rows, self.model, weights),
            number,
            seed,
            None,
            True,
            self.model.local,
            weights,
        )
        target = Target.fitted(self.model, partition, self.executor)
        if checksums(target) != settings["shards"]:
            raise StoreError(
                f"the rows are not those of the run in {store.folder}: the checksums of its shards "
                "differ. Pass the rows that infer was given, in the same order."
            )
        write_partition(store.rows, partition, self.model.levels)

    def _original(self) -> State:
        """Return what `infer` made as a state, and record it."""
        store = self.history.store
        settings = store.settings()
        if settings is None:
            raise StoreError(
                f"{store.folder} is no run directory. Make one: vcmc.infer(model, rows, store=...)."
            )
        loaded = store.load_tree()
        if loaded is None:
            raise StoreError(
                f"the run in {store.folder} is not finished. Repeat the call of infer, or "
                "`vcmc run`, then update."
            )
        attributes = loaded[1]
        partition = kept_partition(store)
        if partition.num_shards != settings["num_shards"]:
            raise StoreError(
                f"{partition.folder} has {partition.num_shards} shards, and the run has "
                f"{settings['num_shards']}: its rows have changed. Restore them from a backup."
            )
        local = self.model.local
        whole = as_partition(partition, None, 0, local=local, weights=settings["weights"])
        target = Target.fitted(self.model, whole, self.executor)
        self._check_model(settings, model_settings(target, settings["seed"]))
        names = tuple(ShardName(ORIGINAL, number) for number in range(partition.num_shards))
        arguments = {name: settings[name] for name in KEPT if name in settings}
        arguments["num_draws"] = int(attributes["num_draws"])
        state = State(
            number=ORIGINAL,
            parent=None,
            action="run",
            name="",
            time=str(attributes["created_at"]),
            num_rows=sum(partition.sizes),
            total_rows=sum(partition.sizes),
            verdict=str(attributes["verdict"]),
            shards=names,
            batches=(ORIGINAL,) * len(names),
            shapes=((settings["num_chains"], settings["shard_draws"]),) * len(names),
            digest=self.digest(batch_shards(partition)),
            settings=arguments,
        )
        state = replace(state, model=self.identity(state))
        self.history.write(state)
        return state

    def digest(self, shards: Sequence[BatchShard]) -> RowDigest:
        """Return the digest of the rows of some shards."""
        column = self.model.local.groups if self.model.local else None
        total = RowDigest()
        for shard in shards:
            rows = EarlierShard(shard, 0, 0, 0).read(column)
            total = total.plus(row_digest(rows, column))
        return total

    def identity(self, state: State) -> dict[str, Any]:
        """Return what identifies the model, by its values on the first shard of a state."""
        shards = self.rows(state.shards)
        target = target_of(self.model, shards, state.settings["weights"], self.executor)
        return model_settings(target, state.settings["seed"])

    def identity_after(self, before: State, state: State) -> dict[str, Any]:
        """Return what identifies the model of a state, whose values may be those of another one.

        Models with local parameters have quadrature nodes that depend on all rows.
        """
        if before.model and self.model.local is None and state.shards[0] == before.shards[0]:
            return before.model
        return self.identity(state)

    def _check_model(self, before: dict[str, Any], now: dict[str, Any]) -> None:
        differences = model_differences({**before, "shards": []}, {**now, "shards": []})
        if differences:
            raise StoreError(
                f"{self.folder} holds a run of another model: {'; '.join(differences)}. Pass the "
                "model of the run, or make a new run: vcmc.infer(..., store=...)."
            )

    def partition(self, update: int) -> FilePartition:
        """Return the rows of the shards that an update sampled."""
        if update == ORIGINAL:
            return kept_partition(self.history.store)
        return FilePartition(self.history.run(update).rows)

    def rows(self, names: Sequence[ShardName]) -> list[BatchShard]:
        """Return the rows of shards by their names."""
        by_update = {
            update: batch_shards(self.partition(update)) for update in {n.update for n in names}
        }
        return [by_update[name.update][name.number] for name in names]

    def shards(self, state: State) -> list[EarlierShard]:
        """Return the shards of a state, with their draws."""
        found = []
        rows_of_shards = self.rows(state.shards)
        facts = state.facts or [None] * len(state.shards)
        for name, batch, shape, rows, known in zip(
            state.shards, state.batches, state.shapes, rows_of_shards, facts, strict=True
        ):
            partition = self.partition(name.update)
            num_rows = partition.sizes[name.number]
            size = num_rows
            if self.model.local is not None and (groups := partition.read_groups()):
                size = int(np.sum(groups.shards == name.number))
            chains = stored_chains(self.history.run(name.update), name.number, shape)
            found.append(EarlierShard(rows, size, num_rows, batch, chains, name, known))
        return found

    def tree(self, number: int) -> "DataTree":
        """Return the result of a state."""
        from ..results.tree import build_tree

        return build_tree(*self.result(number))

    def result(self, number: int) -> tuple[Groups, dict[str, Any]]:
        """Return the groups and the attributes of the result of a state."""
        loaded = self.history.run(number).load_tree()
        if loaded is None:
            raise StoreError(
                f"the result of state {number} of {self.folder} is missing or damaged. Restore it "
                "from a backup, or go back to another state: vcmc.restore(store, number)."
            )
        return loaded[0], loaded[1]


def stored_chains(store: Store, shard: int, shape: tuple[int, int]) -> list[Chain]:
    """Return the chains of a shard; raise `StoreError` if they are not complete.

    Chains that were made longer later are cut.
    """
    num_chains, num_draws = shape
    chains = [join_blocks(blocks) for folder in store.chains(shard) if (blocks := folder.blocks())]
    if len(chains) != num_chains or any(len(chain.points) < num_draws for chain in chains):
        raise StoreError(
            f"the draws of shard {shard} in {store.folder} are missing or damaged. Restore them "
            "from a backup, or repeat the call that made them, which samples them again."
        )
    return [group_by_walker(_cut(chain, num_draws)) for chain in chains]


def _cut(chain: Chain, num_draws: int) -> Chain:
    stats = {name: values[:num_draws] for name, values in chain.stats.items()}
    return Chain(chain.points[:num_draws], stats)
