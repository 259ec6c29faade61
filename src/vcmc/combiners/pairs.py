"""Multiply shards in a tree of pairwise products."""

from collections.abc import Callable
from typing import TypeVar

Node = TypeVar("Node")

MIN_INNER_DRAWS = 1000  # of products inside the tree, so that few draws do not become fewer


def multiply_pairs(
    nodes: list[Node],
    num_draws: int,
    log_volume: Callable[[Node], float],
    product: Callable[[Node, Node, int], Node],
) -> Node:
    """Return the product of all nodes.

    The widest node is paired with the narrowest, which tells where the wide one matters.

    Args:
        nodes: the shards.
        num_draws: draws of the last product; earlier ones have at least 1 000.
        log_volume: log of the volume of a node, up to a constant.
        product: the product of two nodes, with the given number of draws.
    """
    while len(nodes) > 1:
        count = num_draws if len(nodes) == 2 else max(num_draws, MIN_INNER_DRAWS)
        nodes = sorted(nodes, key=log_volume)
        half = len(nodes) // 2
        pairs = zip(nodes[:half], reversed(nodes[-half:]), strict=True)
        nodes = [product(first, second, count) for first, second in pairs] + nodes[half:-half]
    return nodes[0]
