import numpy as np

from seq2seq.evaluation.bootstrap import grouped, overlapping, resampled_sums


def test_segments_that_overlap_through_others_are_one_group():
    """Joined by 1, 2 and 3 of 13 segments: blocks of 6, and what is left over."""
    joined = [range(end - k, end) for k in (1, 2, 3) for end in range(k, 14, k)]
    assert overlapping(joined) == [rows.start // 6 for rows in joined]
    assert overlapping([range(0, 2), range(2, 4)]) == [0, 1]


def test_groups_are_drawn_whole():
    counts = np.arange(24.0).reshape(24, 1)
    groups = [row % 12 for row in range(24)]
    sums = grouped(counts, groups)
    assert sums[:, 0].tolist() == [2 * row + 12 for row in range(12)]
    assert list(resampled_sums(sums, 5, 1)) == list(resampled_sums(sums[:12], 5, 1))
    assert list(resampled_sums(grouped(counts[:9], None), 5, 1)) == []
