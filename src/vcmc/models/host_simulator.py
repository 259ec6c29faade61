"""New values of rows that JAX does not draw, as those of PyMC models, for predictions."""

import abc
from collections.abc import Mapping, Sequence

import numpy as np

Arrays = Mapping[str, np.ndarray]


class AbstractHostSimulator(abc.ABC):
    """Draws new values of rows at all draws of the posterior, in Python."""

    @property
    @abc.abstractmethod
    def names(self) -> Sequence[str]:
        """What is drawn."""

    @property
    @abc.abstractmethod
    def columns(self) -> Sequence[str]:
        """The columns of rows that it needs."""

    @property
    @abc.abstractmethod
    def known_columns(self) -> Sequence[str]:
        """All columns that the model has, those with observed values included."""

    @abc.abstractmethod
    def simulate(
        self, name: str, seed: Sequence[int], params: Arrays, local: Arrays, rows: Arrays
    ) -> np.ndarray:
        """Return values (draw, row, …).

        Args:
            name: what to draw.
            seed: seed of the values.
            params: arrays (draw, …).
            local: arrays (draw, row, …) with the local params of each row's group.
            rows: rows.
        """

    @abc.abstractmethod
    def simulate_local(self, seed: Sequence[int], params: Arrays) -> dict[str, np.ndarray]:
        """Return local params (draw, …) of one new group, drawn from their prior given params."""
