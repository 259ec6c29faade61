"""Convert the blocks of a chain to the arrays that a run directory stores, and back."""

from collections.abc import Mapping, Sequence

import numpy as np

from ..samplers.base import Chain, concatenate_blocks

STATS = "stats/"  # prefix of the names under which the sampler's statistics are stored


def pack_block(chain: Chain, span: tuple[float, float]) -> dict[str, np.ndarray]:
    """Return the arrays of one block, with the times at which it began and ended."""
    stats = {f"{STATS}{name}": values for name, values in chain.stats.items()}
    return {"points": chain.points, "span": np.array(span), **stats}


def join_blocks(blocks: Sequence[Mapping[str, np.ndarray]]) -> Chain:
    """Return the chain of consecutive stored blocks."""
    names = [name for name in blocks[0] if name.startswith(STATS)]
    return concatenate_blocks(
        [
            Chain(block["points"], {name.removeprefix(STATS): block[name] for name in names})
            for block in blocks
        ]
    )
