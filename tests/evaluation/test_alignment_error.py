import numpy as np
import pytest

from seq2seq.errors import UserError
from seq2seq.evaluation.alignment_error import alignment_error_rate, word_links, word_weights, words_of_pieces


def test_alignment_error_rate_by_hand():
    # A = 3 links, S = 2, P adds one. |A and S| = 1, |A and P| = 2: 1 - 3 / 5.
    predicted, sure, possible = [[(0, 0), (1, 2), (3, 3)]], [[(0, 0), (1, 1)]], [[(1, 2)]]
    assert alignment_error_rate(predicted, sure, possible) == pytest.approx(1 - 3 / 5)


def test_sure_links_are_the_possible_ones_by_default():
    # |A and S| = 1, |A| = 2, |S| = 3: 1 - 2 / 5.
    assert alignment_error_rate([[(0, 0), (5, 5)]], [[(0, 0), (1, 1), (2, 2)]]) == pytest.approx(1 - 2 / 5)


def test_counts_are_summed_over_segments():
    predicted, sure = [[(0, 0)], [(0, 1), (1, 1)]], [[[0, 0]], [[0, 0]]]
    assert alignment_error_rate(predicted, sure) == pytest.approx(1 - 2 / 5)
    assert alignment_error_rate(sure, sure) == 0.0
    assert alignment_error_rate([[]], [[]]) == 0.0
    assert alignment_error_rate([[(0, 1)]], [[(1, 0)]]) == 1.0


def test_different_numbers_of_segments_are_refused():
    with pytest.raises(UserError, match="2 segments"):
        alignment_error_rate([[], []], [[]])


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["▁the", "▁dog", "s", "▁ran"], [0, 1, 1, 2]),
        (["the", "▁dog"], [0, 1]),
        (["▁", "t", "h", "▁", "d"], [0, 0, 0, 1, 1]),
        (["▁x", "<0xC3>", "<0xA4>", "▁y"], [0, 0, 0, 1]),
        (["▁the", "<0xE2>", "<0x96>", "<0x81>", "<0x7A>", "<0x6F>", "▁ran"], [0, 1, 1, 1, 1, 1, 2]),
        (["<0xE2>", "<0x96>", "<0x81>", "<0x7A>", "<0xE2>", "<0x96>", "<0x81>", "<0x7A>"], [0, 0, 0, 0, 1, 1, 1, 1]),
        (["▁x", "<0xE2>", "<0x96>", "<0x82>"], [0, 0, 0, 0]),
        ([], []),
    ],
)
def test_pieces_are_numbered_by_the_word_that_they_belong_to(pieces, words):
    assert words_of_pieces(pieces) == words


def test_links_sum_over_the_source_word_and_average_over_the_target_word():
    source, target = ["▁un", "seen", "▁dog"], ["▁un", "ge", "sehen", "▁Hund"]
    weights = np.array(
        [
            # un   seen  dog  EOS
            [0.3, 0.3, 0.4, 0.0],
            [0.3, 0.3, 0.4, 0.0],
            [0.0, 0.3, 0.5, 0.2],
            [0.0, 0.1, 0.2, 0.7],
            [0.9, 0.0, 0.0, 0.1],  # EOS row
        ]
    )
    np.testing.assert_allclose(word_weights(weights, source, target), [[0.5, 1.3 / 3], [0.1, 0.2]])
    assert word_links(weights, source, target) == [(0, 0), (1, 1)]


def test_a_target_word_without_weight_has_no_link():
    assert word_links(np.array([[0.0, 1.0], [0.0, 0.0]]), ["▁a", "▁b"], ["▁x", "▁y"]) == [(1, 0)]
    assert word_links(np.zeros((1, 1)), [], ["▁x"]) == []
    assert word_links(np.zeros((1, 3)), ["▁x"], []) == []


def test_too_few_weights_are_refused():
    with pytest.raises(ValueError, match="2 target"):
        word_links(np.zeros((1, 3)), ["▁a"], ["▁x", "▁y"])
