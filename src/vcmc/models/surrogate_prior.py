"""A model whose prior is a surrogate of an old posterior, which holds the model's own prior."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..data.shard import Shard, Shards
from ..errors import ModelError
from ..model import Model
from ..space import Point, Scalar
from .surrogate import Surrogate


class SurrogateModel(Model):
    """A model with the prior of a surrogate, and the log likelihood of another model.

    Args:
        model: the model of new rows.
        surrogate: the density of the old posterior, in unconstrained coordinates. It holds the
            prior and the Jacobian.
    """

    def __init__(self, model: Model, surrogate: Surrogate):
        if labelled := [name for name, part in model.space.items() if part.num_labels]:
            raise ModelError(
                f"a result with exchangeable components ({labelled}) cannot be updated without the "
                "old rows: its draws have one of many labellings. Give them with rows=."
            )
        # with all that the model was made of; what depends on the prior is overridden below
        self.__dict__.update(model.__dict__)
        self.base = model
        self.surrogate = surrogate
        if self.local is not None:
            self._by_quadrature: dict = {}

    exact_sampler = None

    def suited_sampler(self, shards: Shards) -> None:
        """Return None: samplers of single models rely on the model's own prior."""
        del shards

    def fitted(self, shards: Shards) -> Model:
        """Return the model; point estimates of the old rows are not in the old draws."""
        if self.local is not None:
            return super().fitted(shards)
        if self.base.fitted(shards) is not self.base:
            raise ModelError(
                f"{type(self.base).__name__} estimates some parameters from all rows before "
                "sampling, so it cannot be updated without the old ones. Give them with rows=, or "
                "fix these parameters, e.g. NormalWishart(..., mean=...)."
            )
        return self

    def starts(self, shard: Shard, key: Array) -> list[Point]:
        """Return the old posterior's mean."""
        del shard, key
        return [jnp.asarray(self.surrogate.centre)]

    def log_prior_at(self, point: Point) -> Scalar:
        """Return the surrogate's log density."""
        return self.surrogate.white_with_log_density(point)[1]

    def log_prior_parts_at(self, point: Point) -> Float[Array, "2"]:
        """Return the surrogate's log density, which holds the Jacobian, and zero.

        Powers of models with groups are for a prior of the params; here both are raised as one.
        """
        return jnp.stack([self.log_prior_at(point), jnp.zeros(())])

    def log_likelihood_at(self, point: Point, shard: Shard, is_batched: bool = False) -> Scalar:
        """Return the log likelihood of a shard's rows at a point."""
        if self.local is not None:
            return super().log_likelihood_at(point, shard, is_batched)
        return self.base.log_likelihood_at(point, shard, is_batched)

    def __repr__(self) -> str:
        return repr(self.base)
