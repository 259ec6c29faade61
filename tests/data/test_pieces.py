"""Pieces of equally many rows."""

import numpy as np
import pytest

from vcmc.data.pieces import (
    MAX_PIECE_BYTES,
    cut_pieces,
    joined_piece,
    piece_length,
    sample_pieces,
)
from vcmc.data.shard import padded


@pytest.mark.parametrize("counts", [[5], [3, 2, 3], [7, 1, 1, 1, 40, 2], [1, 1, 1]])
@pytest.mark.parametrize("row_bytes", [8, MAX_PIECE_BYTES // 4, 2 * MAX_PIECE_BYTES])
def test_every_row_is_in_one_piece(counts, row_bytes):
    numbers = np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])
    shards = [padded({"n": part}, 64) for part in numbers]
    pieces = cut_pieces(counts, piece_length(sum(counts), row_bytes))
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
    lengths = [piece_length(total, 136) for total in range(1000, 200_000, 1000)]
    assert len(set(lengths)) <= 8
    assert max(lengths) * 136 <= MAX_PIECE_BYTES


def test_pieces_have_the_length_of_a_shard_unless_it_is_too_long_or_too_short():
    assert piece_length(80_000, 136, 7168) == 7168
    assert piece_length(9_000, 136, 7168) == 7168
    assert piece_length(80_000, 136, 500) == piece_length(80_000, 136)
    assert piece_length(8_000, 2**16, 1000) == piece_length(8_000, 2**16)
    assert piece_length(7_000, 136, 7168) == piece_length(7_000, 136)


def test_a_sample_has_an_equal_share_of_every_shard():
    counts = [1000, 2, 5000]
    pieces = sample_pieces(counts, 500, 3)
    assert len({piece.length for _, piece in pieces}) == 1
    seen = [set() for _ in counts]
    for shards, piece in pieces:
        assert sum(last - first for first, last in piece.ranges) <= piece.length
        for shard, (first, last) in zip(shards, piece.ranges, strict=True):
            assert not seen[shard] & set(range(first, last))
            assert 0 <= first < last <= counts[shard]
            seen[shard] |= set(range(first, last))
    sizes = [len(rows) for rows in seen]
    assert sizes == [249, 0, 1249]
    assert np.isclose(sum(piece.prior_power for _, piece in pieces), sum(sizes) / sum(counts))
