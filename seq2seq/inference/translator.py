"""Text in, translations out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from os import PathLike
from typing import Any

import torch

from seq2seq.data.tokenizer import TokenizerPair
from seq2seq.errors import UserError
from seq2seq.inference.bundle import Bundle
from seq2seq.inference.engines import check_lengths
from seq2seq.inference.export_folder import Export
from seq2seq.inference.loading import find_device, load_model, start_engine
from seq2seq.inference.long_inputs import cut_points, joint_attention, joint_score, one_line
from seq2seq.inference.text_windows import Batching, growing_windows, paired, strings
from seq2seq.inference.translation import BLANK, Candidate, ScoredPair, Translation, different
from seq2seq.interfaces import BOS, EOS, EOS_PIECE, PAD, Hypothesis
from seq2seq.search import BeamSearch, Search, SearchChoice, chosen_search, with_n_best

PART_NUMBERS = 1 << 40
"""Part p of sentence n draws its random numbers as sentence n + p * 2 ** 40."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """A piece of a text that goes through the model at once. ids: without EOS. number: seeds its random draws. prefix:
    target ids that its translation begins with."""

    ids: list[int]
    number: int
    prefix: list[int]


class Translator:
    """Translates with one model, or with the mean of several models' probabilities (they share their tokenizers)."""

    def __init__(
        self,
        bundles: Sequence[Bundle | Export],
        search: SearchChoice = None,
        batching: Batching | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if not bundles:
            raise UserError("no checkpoint was given")
        states = [bundle.tokenizers.state() for bundle in bundles]
        if any(state != states[0] for state in states):
            raise UserError("the checkpoints have different tokenizers; an ensemble needs models trained with the same")
        self.device = torch.device(device)
        self.exported = any(isinstance(bundle, Export) for bundle in bundles)
        self.engine = start_engine(bundles, self.device)
        self.tokenizers: TokenizerPair = bundles[0].tokenizers
        self.languages = bundles[0].languages
        self.search = chosen_search(search, bundles[0].search)
        if search is not None:
            self.engine.check(self.search)
        self.batching = batching or Batching()

    @classmethod
    def load(
        cls,
        path: str | PathLike[str] | Sequence[str | PathLike[str]],
        device: torch.device | str = "cpu",
        search: SearchChoice = None,
        batching: Batching | None = None,
        engine: str = "auto",
    ) -> Translator:
        """Load a run's folder, a bundle or a .ckpt (several make an ensemble), or an export for CTranslate2 or ONNX.

        search: by default the model's own; a name such as "greedy" is that method with its defaults, a mapping such as
        {"beam_size": 10} changes options of the model's own. engine: "torch", "ctranslate2" or "onnx" accept one kind
        of model, "auto" any.

        Raises:
            UserError: there is no usable model, this machine lacks the device, or the model cannot do the search.
        """
        paths = [path] if isinstance(path, str | PathLike) else list(path)
        device = find_device(device)
        return cls([load_model(one, device, engine) for one in paths], search, batching, device)

    @property
    def models(self) -> list[Any]:
        """The models (`interfaces.Model`) if this package's own search runs over them, else []."""
        return self.engine.models

    @property
    def longest_part(self) -> int:
        """Most source tokens, without EOS, that go through the model at once."""
        longest = self.batching.max_source_length
        return min(longest, self.engine.longest_source or longest)

    def resolve(self, search: SearchChoice, n_best: int | None = None) -> Search:
        """The search that `search` stands for (see `load`) with this n_best. Raises UserError if there is none."""
        return with_n_best(chosen_search(search, self.search), n_best)

    def translate(
        self,
        texts: str | Iterable[str],
        *,
        search: SearchChoice = None,
        n_best: int | None = None,
        alignment: bool = False,
        prefixes: str | Iterable[str] | None = None,
    ) -> Iterator[Translation]:
        """Translate `texts`, which may be endless, in their order and with bounded memory.

        The first window is small so that the first translations come soon; Batching(window=1) translates each text as
        it comes. search: by default the translator's own, see `load`. n_best: candidates for each text, as many as the
        search has different ones. alignment: with attention. prefixes: the beginning that each translation must have
        ("" for none).

        Raises:
            TypeError: a text or prefix that is no string, named by its row.
        """
        search = self.resolve(search, n_best)
        texts = strings([texts] if isinstance(texts, str) else texts, "text")
        if prefixes is None:
            pairs: Iterator[tuple[str, str]] = ((text, "") for text in texts)
        else:
            prefixes = strings([prefixes] if isinstance(prefixes, str) else prefixes, "prefix")
            pairs = paired(texts, prefixes, "prefixes")
        number = 0
        for window in growing_windows(pairs, self.batching.window):
            yield from self.translate_window(
                [text for text, _ in window],
                search=search,
                alignment=alignment,
                prefixes=[prefix for _, prefix in window],
                numbers=range(number, number + len(window)),
            )
            number += len(window)

    def translate_window(
        self,
        texts: Sequence[str],
        *,
        search: SearchChoice = None,
        n_best: int | None = None,
        alignment: bool = False,
        prefixes: Sequence[str] | None = None,
        numbers: Sequence[int] | None = None,
    ) -> list[Translation]:
        """Translate all of `texts` at once, sorted by length into batches.

        numbers: what seeds each text's random draws; by default its place. Further arguments: see `translate`.
        """
        search = self.resolve(search, n_best)
        numbers = range(len(texts)) if numbers is None else numbers
        texts = list(strings(texts, "text"))
        prefixes = [prefix for _, prefix in paired(texts, prefixes, "prefixes")] if prefixes is not None else []
        prefixes = list(strings(prefixes, "prefix"))
        starts = self.tokenizers.target.encode(prefixes) if any(prefixes) else [[]] * len(texts)
        cut = [self._cut(*one) for one in zip(self._source_ids(texts), numbers, starts, strict=True)]
        parts = [own for own, _ in cut]
        found = self._candidates(parts, search, alignment)
        if isinstance(search, BeamSearch) and search.n_best > 1:
            found = self._with_different_texts(found, parts, search, alignment)
        return [
            Translation(nbest, self._source_tokens(own), len(own), truncated) if own else Translation([BLANK], [], 0)
            for nbest, (own, truncated) in zip(found, cut, strict=True)
        ]

    def _cut(self, ids: list[int], number: int, start: list[int]) -> tuple[list[Part], bool]:
        """The parts of a text, and whether it was truncated. start: target ids that its translation begins with."""
        if start and not ids:
            raise UserError(f"text {number + 1} is blank, and so is its translation: no prefix can be forced on it")
        cuts, truncated = [len(ids)] if ids else [], False
        if len(ids) > self.longest_part:
            cuts = cut_points(self.tokenizers.source.pieces(ids), self.longest_part)
        if len(cuts) > 1 and self.batching.long_lines == "truncate":
            cuts, truncated = [self.longest_part], True
        return [
            Part(ids[low:high], number + part * PART_NUMBERS, [] if part else start)
            for part, (low, high) in enumerate(zip([0, *cuts], cuts, strict=False))
        ], truncated

    def _candidates(self, texts: Sequence[Sequence[Part]], search: Search, alignment: bool) -> list[list[Candidate]]:
        """The candidates for each text, which is given by its parts; best first."""
        parts = [part for text in texts for part in text]
        decoded = iter(
            self.engine.decode(
                [part.ids for part in parts],
                search,
                self.batching.max_tokens,
                prefixes=[part.prefix for part in parts],
                numbers=[part.number for part in parts],
                with_weights=alignment,
            )
        )
        joined = [list(zip(*islice(decoded, len(text)), strict=False)) for text in texts]
        tokens = [one.tokens for nbest in joined for candidate in nbest for one in candidate]
        written = iter(self.tokenizers.target.decode_batch(tokens))
        return [self._assemble(nbest, written, search) for nbest in joined]

    def _with_different_texts(
        self, found: list[list[Candidate]], texts: Sequence[Sequence[Part]], search: BeamSearch, alignment: bool
    ) -> list[list[Candidate]]:
        """`found` with one candidate, the best, of those that spell one text in several ways; in place of the others
        come the next best in the beam."""
        merged = [different(candidates) for candidates in found]
        short = [
            place
            for place, kept in enumerate(merged)
            if len(kept) < len(found[place]) == search.n_best < search.beam_size
        ]
        if short:
            wider = replace(search, n_best=search.beam_size)
            again = self._candidates([texts[place] for place in short], wider, alignment)
            for place, candidates in zip(short, again, strict=True):
                merged[place] = different(candidates)[: search.n_best]
        return merged

    def _source_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids without EOS; [] for a blank text, which is never translated."""
        texts = ["" if text.isspace() else text for text in texts]
        return self.tokenizers.source.encode(texts, torch.get_num_threads())

    def score(
        self, sources: Iterable[str], targets: Iterable[str | Sequence[str]], *, search: SearchChoice = None
    ) -> Iterator[ScoredPair]:
        """Scores of given translations, equal to those that `search` (by default the translator's) reports for them.

        targets: texts, or sequences of target pieces (as in `Candidate.tokens`) where the exact tokens matter. Nothing
        is split, shortened or left out: a source longer than max_source_length, which `translate` would split, has
        another score here (a warning counts them). A blank translation of a blank text has the score 0, as in
        `translate`.
        """
        search = self.resolve(search)
        pairs, done = paired(strings(sources, "source"), _targets(targets), "targets"), 0
        while window := list(islice(pairs, self.batching.window)):
            yield from self._score([pair[0] for pair in window], [pair[1] for pair in window], search, done)
            done += len(window)

    def _score(
        self, sources: list[str], targets: list[str | Sequence[str]], search: Search, done: int
    ) -> Iterator[ScoredPair]:
        source_ids = self._source_ids(sources)
        if too_long := sum(len(ids) > self.longest_part for ids in source_ids):
            logger.warning(
                "%d sources are longer than %d tokens: translate would split them, and score them otherwise",
                too_long,
                self.longest_part,
            )
        target = self.tokenizers.target
        texts = iter(target.encode([one for one in targets if isinstance(one, str)]))
        target_ids = [next(texts) if isinstance(one, str) else self._ids(one) for one in targets]
        check_lengths(self.engine, source_ids, target_ids, done)
        blank = [not (source or target) for source, target in zip(source_ids, target_ids, strict=True)]
        kept = [
            [ids for ids, left_out in zip(side, blank, strict=True) if not left_out]
            for side in (source_ids, target_ids)
        ]
        scored = iter(self.engine.score(kept[0], kept[1], search.ranking, self.batching.max_tokens))
        for left_out in blank:
            if left_out:
                yield ScoredPair(BLANK.score, BLANK.log_probability, [], [])
                continue
            one = next(scored)
            yield ScoredPair(one.score, one.log_probability, target.pieces(one.tokens), one.token_log_probabilities)

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        target = self.tokenizers.target
        return {piece: number for number, piece in enumerate(target.pieces(range(len(target))))}

    def _ids(self, pieces: Sequence[str]) -> list[int]:
        try:
            ids = [self._vocabulary[piece] for piece in pieces]
        except KeyError as error:
            raise UserError(f"the target token {error} is not in the vocabulary") from error
        for piece, number in zip(pieces, ids, strict=True):
            if number in (PAD, BOS, EOS):
                raise UserError(
                    f"the target token {piece!r} is a control symbol, which no translation contains: drop it"
                )
        return ids

    def _source_tokens(self, parts: Sequence[Part]) -> list[str]:
        return [piece for part in parts for piece in (*self.tokenizers.source.pieces(part.ids), EOS_PIECE)]

    def _assemble(
        self, found: Sequence[Sequence[Hypothesis]], written: Iterator[str], search: Search
    ) -> list[Candidate]:
        """Candidates from hypotheses, one for every part of the text; their texts come next in `written`."""
        nbest = []
        for candidate in found:
            own = list(islice(written, len(candidate)))
            nbest.append(
                Candidate(
                    text=one_line(" ".join(text for text in own if text)),
                    score=candidate[0].score if len(candidate) == 1 else joint_score(candidate, search),
                    log_probability=sum(one.log_probability for one in candidate),
                    tokens=self.tokenizers.target.pieces([token for one in candidate for token in one.tokens]),
                    finished=all(one.finished for one in candidate),
                    heads=joint_attention(candidate),
                )
            )
        if found and len(found[0]) > 1:
            nbest.sort(key=lambda one: (not one.finished, -one.score))
        return nbest


def _targets(targets: Iterable[Any]) -> Iterator[str | Sequence[str]]:
    """The same targets. Raises TypeError that names the first one that is neither a text nor a sequence of pieces."""
    for row, target in enumerate(targets, 1):
        pieces = target if isinstance(target, Sequence) else [None]
        if not all(isinstance(piece, str) for piece in pieces):
            raise TypeError(f"target {row} is {target!r:.40}, neither a string nor a sequence of target tokens")
        yield target
