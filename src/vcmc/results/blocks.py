"""Blocks of a chain as the arrays that a run directory keeps."""

from collections.abc import Mapping, Sequence

import numpy as np

from ..samplers.base import Chain, joined


def pack_block(chain: Chain, span: tuple[float, float]) -> dict[str, np.ndarray]:
    """Return the arrays of one block, and when it began and ended."""
    stats = {f"stats/{name}": values for name, values in chain.stats.items()}
    return {"points": chain.points, "span": np.array(span), **stats}


def join_blocks(blocks: Sequence[Mapping[str, np.ndarray]]) -> Chain:
    """The chain of which blocks were kept."""
    names = [name for name in blocks[0] if name.startswith("stats/")]
    return joined(
        [
            Chain(block["points"], {name.removeprefix("stats/"): block[name] for name in names})
            for block in blocks
        ]
    )
