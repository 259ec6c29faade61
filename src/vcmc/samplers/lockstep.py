"""Run several searches side by side and evaluate their points together.

A batch of points costs little more than one point. Each search runs in a thread of its own and
waits until the others want an evaluation as well, or have ended; one call then evaluates the points
of all. Which points share a call is determined by the searches, not by the speed of threads.
"""

from collections.abc import Callable, Sequence
from threading import Condition
from typing import Any

import numpy as np
from jaxtyping import Float

from .._runtime import Item, Result, new_pool

Density = Callable[[Any], tuple[Any, Any]]
"""A function from a batch of points to their log densities and scores."""


def search_together(
    density: Density, search: Callable[[Density, Item], Result], items: Sequence[Item]
) -> list[Result]:
    """Return the results of a search from each item; `search` evaluates one point at a time.

    >>> def square(points):
    ...     return -(points[:, 0] ** 2), -2 * points
    >>> search_together(square, lambda density, start: density(start)[0][0], np.ones((2, 1, 1)))
    [np.float64(-1.0), np.float64(-1.0)]
    """
    if len(items) == 1:
        return [search(density, items[0])]
    lockstep = _Lockstep(density, len(items))

    def run(index: int) -> Result:
        try:
            return search(lambda point: lockstep.evaluate(index, point), items[index])
        finally:
            lockstep.leave()

    pool = new_pool(len(items))
    try:
        return list(pool.map(run, range(len(items))))
    finally:
        pool.shutdown(wait=False)


class _Lockstep:
    """A density that waits for a point from each running search."""

    def __init__(self, density: Density, num_searches: int):
        self._density = density
        self._num_running = num_searches
        self._points: dict[int, Float[np.ndarray, "1 dim"]] = {}
        self._results: dict[int, tuple[Any, Any] | Exception] = {}
        self._condition = Condition()

    def evaluate(self, index: int, point: Any) -> tuple[Any, Any]:
        """Return log density and score at a point, once all running searches have given one."""
        with self._condition:
            self._points[index] = np.asarray(point)
            self._evaluate_if_complete()
            self._condition.wait_for(lambda: index in self._results)
            result = self._results.pop(index)
        if isinstance(result, Exception):
            raise result
        return result

    def leave(self) -> None:
        """End a search: the others no longer wait for it."""
        with self._condition:
            self._num_running -= 1
            self._evaluate_if_complete()

    def _evaluate_if_complete(self) -> None:
        if not self._points or len(self._points) < self._num_running:
            return
        order = sorted(self._points)
        try:
            values, scores = self._density(np.concatenate([self._points[i] for i in order]))
            for row, index in enumerate(order):
                self._results[index] = values[row : row + 1], scores[row : row + 1]
        except Exception as error:
            self._results |= dict.fromkeys(order, error)
        self._points.clear()
        self._condition.notify_all()
