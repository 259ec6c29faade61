"""Multiply shards two by two, and the products again, until one is left."""

from collections.abc import Callable
from typing import TypeVar

Node = TypeVar("Node")

MIN_BETWEEN = (
    1000  # draws of products inside the tree, so that few draws are not made fewer by every product
)


def multiplied(
    nodes: list[Node],
    num_draws: int,
    log_volume: Callable[[Node], float],
    product: Callable[[Node, Node, int], Node],
) -> Node:
    """The product of all nodes; the last is asked for `num_draws` draws, those before it for 1 000 or more.

    The widest is paired with the narrowest, which says where the wide one matters.
    """
    while len(nodes) > 1:
        count = num_draws if len(nodes) == 2 else max(num_draws, MIN_BETWEEN)
        nodes = sorted(nodes, key=log_volume)
        half = len(nodes) // 2
        pairs = zip(nodes[:half], reversed(nodes[-half:]), strict=True)
        nodes = [product(first, second, count) for first, second in pairs] + nodes[half:-half]
    return nodes[0]
