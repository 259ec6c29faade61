"""Pieces of equally many rows."""

import numpy as np
import pytest

from vcmc.data.pieces import MAX_PIECE_BYTES, cut_pieces, joined_piece
from vcmc.data.shard import padded


@pytest.mark.parametrize("counts", [[5], [3, 2, 3], [7, 1, 1, 1, 40, 2], [1, 1, 1]])
@pytest.mark.parametrize("row_bytes", [8, MAX_PIECE_BYTES // 4, 2 * MAX_PIECE_BYTES])
def test_every_row_is_in_one_piece(counts, row_bytes):
    numbers = np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])
    shards = [padded({"n": part}, 64) for part in numbers]
    pieces = cut_pieces(counts, row_bytes)
    assert len({piece.length for _, piece in pieces}) == 1
    assert np.isclose(sum(piece.prior_power for _, piece in pieces), 1)
    found = []
    for chosen, piece in pieces:
        joint = joined_piece([shards[shard] for shard in chosen], piece)
        assert len(joint.weights) == piece.length
        assert piece.length == 1 or piece.length * row_bytes <= MAX_PIECE_BYTES
        found += np.asarray(joint.rows["n"])[np.asarray(joint.weights) > 0].tolist()
    assert found == list(range(sum(counts)))


def test_lengths_change_where_rows_double():
    lengths = [cut_pieces([total], 136)[0][1].length for total in range(1000, 200_000, 1000)]
    assert len(set(lengths)) <= 8
    assert max(lengths) * 136 <= MAX_PIECE_BYTES
