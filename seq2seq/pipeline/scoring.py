"""Score a trained model on the test sets of a corpus, by the same path as translation."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Sequence
from copy import copy
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from seq2seq.data.translation_data import TranslationData
from seq2seq.errors import UserError
from seq2seq.evaluation.alignment_error import alignment_error_rate, word_links
from seq2seq.evaluation.bootstrap import overlapping
from seq2seq.evaluation.comet import Comet
from seq2seq.evaluation.languages import length_unit
from seq2seq.evaluation.lengths import spread
from seq2seq.evaluation.metrics import (
    LEARNED,
    PRIMARY,
    References,
    evaluate_texts,
    length_ratio,
    perplexity_text,
    summary,
)
from seq2seq.evaluation.words import KEPT_WORDS, count_words
from seq2seq.files import atomic_write
from seq2seq.inference.translator import Translator
from seq2seq.interfaces import EOS_PIECE
from seq2seq.run import Run
from seq2seq.search import BeamSearch, GreedySearch, Search
from seq2seq.search.options import Options
from seq2seq.training.validation import likelihood

logger = logging.getLogger(__name__)

PICTURES = 12
"""Segments of each test set whose attention is kept."""


def score_split(
    translator: Translator,
    data: TranslationData,
    split: str,
    search: dict[str, Any],
    output: Run | None,
    tokenize: str = "13a",
    lowercase: bool = False,
    comet: Comet | None = None,
    beam_sizes: Sequence[int] = (),
) -> dict[str, Any]:
    """Translate and score one split, and return its entry in metrics.json. Texts, attention and, where segments have
    any, their groups are written to `output`. "decoding" counts the translations that were "cut" at the maximum length,
    and the sources that were too long for one pass and "split".

    search: the plain configuration of the translator's search, which the entry repeats. comet: score with it too.
    beam_sizes: see `beam_effect`.
    """
    sources, references = data.pairs(split)
    groups = segment_groups(data, split)
    began = time.perf_counter()
    found = list(translator.translate(sources))
    seconds = time.perf_counter() - began
    hypotheses = [one.text for one in found]
    cut, parted = sum(not one.finished for one in found), sum(one.parts > 1 for one in found)
    entry = evaluate_texts(
        hypotheses,
        references,
        sources,
        tokenize=tokenize,
        lowercase=lowercase,
        reference_parts=reference_parts(data, split),
        groups=groups,
        languages=(data.source_language, data.target_language),
    )
    model = translator.models[0]
    losses = likelihood(model, list(data.evaluation_batches(split)), translator.device)
    nll = math.fsum(value for value, _ in losses.values()) / sum(tokens for _, tokens in losses.values())
    entry |= {"nll": nll, "perplexity": math.exp(min(nll, 700)), "alignment_error_rate": None}
    if model.attends and "alignment" in data.table(split).column_names:
        entry["alignment_error_rate"] = alignment_error(translator, data, split)
    entry["decoding"] = {
        "seconds": round(seconds, 3),
        "sentences_per_second": round(len(sources) / seconds, 2),
        "cut": cut,
        "split": parted,
        "search": search,
    }
    if comet is not None:
        entry[LEARNED.key] = comet.score(hypotheses, references, sources, groups=groups)
    if beam_sizes:
        entry["by_beam_size"] = beam_effect(translator, sources, references, beam_sizes, tokenize, lowercase, groups)
    if output is not None:
        write_texts(output, split, {"src": sources, "ref": references, "hyp": hypotheses}, groups)
        if model.attends:
            write_attention(translator, sources, output.attention(split))
    if cut or parted:
        logger.info("%s: %d translations cut at the maximum length, %d sources split as too long", split, cut, parted)
    logger.info("%s: %s, perplexity %s", split, summary(entry), perplexity_text(entry["perplexity"]))
    return entry


def write_texts(output: Run, split: str, texts: dict[str, list[str]], groups: list[int] | None) -> None:
    """Write each kind of text, and the groups of segments."""
    for kind, lines in texts.items():
        with atomic_write(output.text(split, kind)) as stream:
            stream.writelines(f"{line}\n" for line in lines)
    if groups is not None:
        with atomic_write(output.groups(split)) as stream:
            json.dump(groups, stream)


def reference_parts(data: TranslationData, split: str) -> list[list[str]] | None:
    """The references that each segment of a joined test set was joined from; None for other sets, and for those whose
    segments have different numbers of parts."""
    origin = data.corpus.origin(split)
    if origin is None or len({len(rows) for rows in origin[1]}) > 1:
        return None
    _, references = data.pairs(origin[0])
    return [references[rows.start : rows.stop] for rows in origin[1]]


def segment_groups(data: TranslationData, split: str) -> list[int] | None:
    """A number for each segment of a test set that joins the same originals in several ways: segments that share some,
    directly or through others, have one number. None where all are independent."""
    origin = data.corpus.origin(split)
    groups = overlapping(origin[1]) if origin else []
    return groups if len(set(groups)) < len(groups) else None


def beam_effect(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    sizes: Sequence[int],
    tokenize: str = "13a",
    lowercase: bool = False,
    groups: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """Measure the effect of the beam, all else being as in the translator's search: for each size {"beam_size", the
    primary metric's key: {"score", "low", "high"}, "length_ratio", "sentences_per_second", "cut"}."""
    searches = [with_beam_size(translator.search, size) for size in sizes]
    test_set = References(references, tokenize, lowercase, groups)
    found = []
    for search in searches:
        began = time.perf_counter()
        translations = list(translator.translate(sources, search=search))
        seconds = time.perf_counter() - began
        hypotheses = [one.text for one in translations]
        found_by = test_set.statistics(PRIMARY, hypotheses)
        entry = {
            "beam_size": search.beam_size,
            PRIMARY.key: found_by.interval(),
            "length_ratio": length_ratio(found_by),
            "sentences_per_second": round(len(sources) / seconds, 2),
            "cut": sum(not one.finished for one in translations),
        }
        logger.info("beam %d: %s %.2f", search.beam_size, PRIMARY.name, found_by.score())
        found.append(entry)
    return found


def with_beam_size(search: Search, size: int) -> BeamSearch:
    """Beam search of this size with the other options of `search`. Raises UserError if that cannot be."""
    if isinstance(search, BeamSearch):
        return replace(search, beam_size=size)
    if isinstance(search, GreedySearch):
        return BeamSearch(beam_size=size, **{field.name: getattr(search, field.name) for field in fields(Options)})
    raise UserError("beam_sizes=[...] has no meaning for sampling; give search=beam")


def alignment_error(translator: Translator, data: TranslationData, split: str) -> float:
    """AER of the attention while the references are force-decoded, against the corpus' gold alignments."""
    sources, references = data.pairs(split)
    longest = max(map(len, data.tokenizers.target.encode(references)))
    search = GreedySearch(max_length_a=0.0, max_length_b=longest)
    predicted = []
    unsplit = copy(translator)
    unsplit.batching = replace(translator.batching, max_source_length=sys.maxsize)
    forced = unsplit.translate(sources, search=search, alignment=True, prefixes=references)
    for reference, one in zip(references, forced, strict=True):
        pieces = data.tokenizers.target.pieces(data.tokenizers.target.encode([reference])[0])
        source_pieces = [piece for piece in one.source_tokens if piece != EOS_PIECE]
        assert one.alignment is not None
        predicted.append(word_links(one.alignment.numpy(), source_pieces, pieces))
    gold = [[(source, target) for source, target in links] for links in data.table(split).column("alignment")]
    return alignment_error_rate(predicted, gold)


def write_attention(translator: Translator, sources: Sequence[str], path: Path) -> None:
    """Attention over segments spread evenly over the set by length: {"row", "source", "target", "weights"} a line."""
    by_length = sorted(range(len(sources)), key=lambda row: (len(sources[row].split()), row))
    rows = sorted(by_length[place] for place in spread(len(sources), PICTURES))
    translations = translator.translate_window([sources[row] for row in rows], alignment=True, numbers=rows)
    with atomic_write(path) as stream:
        for row, one in zip(rows, translations, strict=True):
            record = one.record()
            if record.get("alignment"):
                line = {"row": row, "source": one.source_tokens, "target": one.tokens, "weights": record["alignment"]}
                stream.write(json.dumps(line, ensure_ascii=False) + "\n")


def write_word_counts(data: TranslationData, path: Path) -> None:
    """Count the words, or in a language without spaces the characters, of the training targets: the KEPT_WORDS most
    frequent. Nothing for a stream, which is not read once more for it."""
    if data.streaming:
        return
    texts = data.table("train").batches("target")
    unit = length_unit(data.target_language, next(iter(data.table("train").batches("target")))["target"])
    counts = count_words((text for batch in texts for text in batch["target"]), unit)
    with atomic_write(path) as stream:
        json.dump(dict(counts.most_common(KEPT_WORDS)), stream, ensure_ascii=False)
