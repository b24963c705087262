"""Word alignment: links from attention weights, and their alignment error rate against gold alignments."""

from collections.abc import Collection, Sequence

import numpy as np

from seq2seq.errors import UserError

Link = tuple[int, int]
"""(source word, target word), both counted from 0."""

WORD_START = "▁"
WORD_START_BYTES = [f"<0x{byte:02X}>" for byte in WORD_START.encode()]
"""The bytes of WORD_START, which begin a word spelled in byte pieces, as unknown words are with tokenizer=word."""


def alignment_error_rate(
    predicted: Sequence[Collection[Link]],
    sure: Sequence[Collection[Link]],
    possible: Sequence[Collection[Link]] | None = None,
) -> float:
    """Alignment error rate, AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|) over all segments (Och & Ney, 2003).

    Each argument has one collection of links per segment: A predicted, S sure, P possible. Sure links are always
    possible too, and without `possible` they are the only ones. 0 is best, and the value where there is no link at all.
    With one predicted link per target word 0 is out of reach where words have several sure links.
    """
    gold = sure if possible is None else possible
    if not len(predicted) == len(sure) == len(gold):
        raise UserError(
            f"cannot compare the links of {len(predicted)} segments with {len(sure)} sure and {len(gold)} possible ones"
        )
    found = total = 0
    for links, certain, allowed in zip(predicted, sure, gold, strict=True):
        a, s = {tuple(link) for link in links}, {tuple(link) for link in certain}
        p = {tuple(link) for link in allowed} | s
        found += len(a & s) + len(a & p)
        total += len(a) + len(s)
    return 1.0 - found / total if total else 0.0


def word_links(weights: np.ndarray, source_pieces: Sequence[str], target_pieces: Sequence[str]) -> list[Link]:
    """Turn attention over subwords into one link for each target word.

    weights (T', S') are the attention of one sentence (mean over heads, if it has several): T' rows for the target
    pieces, then perhaps EOS; S' columns for the source pieces, then perhaps EOS. Rows and columns past the pieces are
    ignored. The weight between two words is the sum over the source word's pieces and the mean over the target word's;
    each target word is linked to the source word with the largest, the first among equals. A target word that gives no
    weight to any word stays without a link.

    Raises ValueError when there are fewer rows or columns than pieces.
    """
    table = word_weights(weights, source_pieces, target_pieces)
    return [(int(row.argmax()), target) for target, row in enumerate(table) if row.size and row.max() > 0]


def word_weights(weights: np.ndarray, source_pieces: Sequence[str], target_pieces: Sequence[str]) -> np.ndarray:
    """(target words, source words): the weights of which `word_links` takes the largest."""
    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[0] < len(target_pieces) or weights.shape[1] < len(source_pieces):
        raise ValueError(
            f"weights {weights.shape} for {len(target_pieces)} target and {len(source_pieces)} source pieces"
        )
    source_words, target_words = words_of_pieces(source_pieces), words_of_pieces(target_pieces)
    sources, targets = max(source_words, default=-1) + 1, max(target_words, default=-1) + 1
    source_sum = np.zeros((len(source_pieces), sources))
    source_sum[np.arange(len(source_pieces)), source_words] = 1.0
    target_mean = np.zeros((targets, len(target_pieces)))
    target_mean[target_words, np.arange(len(target_pieces))] = 1.0
    target_mean /= np.maximum(target_mean.sum(axis=1, keepdims=True), 1.0)
    table: np.ndarray = target_mean @ weights[: len(target_pieces), : len(source_pieces)] @ source_sum
    return table


def words_of_pieces(pieces: Sequence[str]) -> list[int]:
    """Number the word, from 0, that each SentencePiece piece belongs to; '▁', or its three bytes, starts a word."""
    words: list[int] = []
    current = -1
    for index, piece in enumerate(pieces):
        spelt = list(pieces[index : index + 3]) == WORD_START_BYTES
        current += piece.startswith(WORD_START) or spelt or current < 0
        words.append(current)
    return words
