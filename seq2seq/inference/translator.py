"""Text in, translations out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from seq2seq.data.tokenizer import TokenizerPair
from seq2seq.errors import UserError
from seq2seq.inference.bundle import Bundle
from seq2seq.inference.engines import check_lengths
from seq2seq.inference.export_folder import Export
from seq2seq.inference.joining import joint_attention, joint_score, one_line
from seq2seq.inference.loading import find_device, load_model, start_engine
from seq2seq.inference.long_sources import cut_points
from seq2seq.inference.text_windows import growing_windows, paired
from seq2seq.inference.translation import BLANK, Candidate, ScoredPair, Translation
from seq2seq.interfaces import BOS, EOS, EOS_PIECE, PAD, Hypothesis
from seq2seq.search import Search, SearchChoice, chosen_search, with_n_best

PART_NUMBERS = 1 << 40
"""Part p of sentence n draws its random numbers as sentence n + p * 2 ** 40."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batching:
    """How texts become batches; results do not depend on it.

    max_tokens: source tokens in one batch, padding included. window: texts that are sorted by length together, which is
    also what memory holds. max_source_length: a source of more tokens is, by long_lines, "split" at a safe place
    or "truncate"d.
    """

    max_tokens: int = 4096
    window: int = 2000
    max_source_length: int = 512
    long_lines: str = "split"

    def __post_init__(self) -> None:
        for name in ("max_tokens", "window", "max_source_length"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise UserError(f"{name}={value!r} must be a whole number of at least 1")
        if self.long_lines not in ("split", "truncate"):
            raise UserError(f"long_lines={self.long_lines!r} is unknown; choose split or truncate")


@dataclass(frozen=True)
class Part:
    """A piece of a text that goes through the model at once. ids: without EOS."""

    text: int
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
        path: str | Path | Sequence[str | Path],
        device: torch.device | str = "cpu",
        search: SearchChoice = None,
        batching: Batching | None = None,
        engine: str = "auto",
    ) -> Translator:
        """path: a run's folder, a bundle or a .ckpt (several make an ensemble), or an export for CTranslate2 or ONNX.
        search: if not the bundle's own; a name, such as "greedy", is that method with its defaults; a mapping, such as
        {"beam_size": 10}, changes options of the bundle's own. engine: "torch", "ctranslate2" and "onnx" insist on one
        kind of model, "auto" takes any.

        Raises:
            UserError: nothing usable there, a device that this machine does not have, or a search that is none or that
                the model cannot do.
        """
        paths = [path] if isinstance(path, str | Path) else list(path)
        device = find_device(device)
        return cls([load_model(one, device, engine) for one in paths], search, batching, device)

    @property
    def models(self) -> list[Any]:
        """The models (`interfaces.Model`) if our own search runs over them, else []."""
        return self.engine.models

    @property
    def longest_part(self) -> int:
        """Most source tokens, without EOS, that go through the model at once."""
        longest = self.batching.max_source_length
        return min(longest, self.engine.longest_source or longest)

    def resolve(self, search: SearchChoice, n_best: int | None = None) -> Search:
        """The search that is meant, see `load`, with another n_best. Raises UserError if there is no such search."""
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
        """Translations of `texts`, which may have no end, in their order, with bounded memory.

        The first window is small so that the first translations come soon; of texts that themselves come one by one,
        Batching(window=1) translates each at once. prefixes: for each text what its translation must begin with ("" for
        nothing). search: instead of the translator's own, as in `load`. n_best and alignment: see `Translation`.
        """
        search = self.resolve(search, n_best)
        texts = [texts] if isinstance(texts, str) else texts
        prefixes = [prefixes] if isinstance(prefixes, str) else prefixes
        pairs = paired(texts, prefixes, "prefixes") if prefixes is not None else ((text, "") for text in texts)
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
        """All of `texts` at once, sorted by length into batches. numbers: what seeds each text's random draws."""
        search = self.resolve(search, n_best)
        numbers = range(len(texts)) if numbers is None else numbers
        prefixes = [prefix for _, prefix in paired(texts, prefixes, "prefixes")] if prefixes is not None else []
        starts = self.tokenizers.target.encode(prefixes) if any(prefixes) else [[] for _ in texts]
        parts, truncated = self._cut(texts, numbers, starts)
        found = self.engine.decode(
            [part.ids for part in parts],
            search,
            self.batching.max_tokens,
            prefixes=[part.prefix for part in parts],
            numbers=[part.number for part in parts],
            with_weights=alignment,
        )
        grouped: list[list[int]] = [[] for _ in texts]
        for place, one in enumerate(parts):
            grouped[one.text].append(place)
        joined = [list(zip(*(found[place] for place in places), strict=False)) for places in grouped]
        tokens = [one.tokens for nbest in joined for candidate in nbest for one in candidate]
        written = iter(self.tokenizers.target.decode_batch(tokens))
        return [
            self._assemble([parts[place] for place in places], nbest, written, search, text in truncated)
            for text, (places, nbest) in enumerate(zip(grouped, joined, strict=True))
        ]

    def _cut(
        self, texts: Sequence[str], numbers: Sequence[int], starts: Sequence[list[int]]
    ) -> tuple[list[Part], set[int]]:
        """The parts of all texts, and which texts were truncated. starts: target ids that translations begin with."""
        sources = self._source_ids(texts)
        longest = self.longest_part
        parts: list[Part] = []
        truncated = set()
        for text, (ids, number, start) in enumerate(zip(sources, numbers, starts, strict=True)):
            if start and not ids:
                raise UserError(f"text {number + 1} is blank, and so is its translation: no prefix can be forced on it")
            cuts = [len(ids)] if ids else []
            if len(ids) > longest:
                cuts = cut_points(self.tokenizers.source.pieces(ids), longest)
            if len(cuts) > 1 and self.batching.long_lines == "truncate":
                cuts = [longest]
                truncated.add(text)
            for part, (low, high) in enumerate(zip([0, *cuts], cuts, strict=False)):
                parts.append(Part(text, ids[low:high], number + part * PART_NUMBERS, [] if part else start))
        return parts, truncated

    def _source_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Without EOS; [] for a blank text, which is never translated."""
        texts = ["" if text.isspace() else text for text in texts]
        return self.tokenizers.source.encode(texts, torch.get_num_threads())

    def score(
        self, sources: Iterable[str], targets: Iterable[str | Sequence[str]], *, search: SearchChoice = None
    ) -> Iterator[ScoredPair]:
        """Scores of given translations, exactly what `search` (the default one if None) reports for the same tokens.

        targets: texts, or sequences of target pieces (as in `Candidate.tokens`), which say exactly which tokens.
        Nothing is split, shortened or left out: so a source longer than max_source_length, which `translate` would have
        split, has another score here (a warning tells how many there are). A blank translation of a blank text has the
        score 0, as in `translate`.
        """
        search = self.resolve(search)
        pairs, done = paired(sources, targets, "targets"), 0
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
                raise UserError(f"the target token {piece!r} is a control symbol, which no translation holds: drop it")
        return ids

    def _assemble(
        self,
        parts: list[Part],
        found: Sequence[Sequence[Hypothesis]],
        written: Iterator[str],
        search: Search,
        truncated: bool,
    ) -> Translation:
        """found: the candidates, each a hypothesis for every part; written: their texts come next."""
        if not parts:
            return Translation([BLANK], [], 0)
        source_tokens = [piece for part in parts for piece in (*self.tokenizers.source.pieces(part.ids), EOS_PIECE)]
        nbest = []
        for candidate in found:
            own = list(islice(written, len(candidate)))
            log_probability = sum(one.log_probability for one in candidate)
            nbest.append(
                Candidate(
                    text=one_line(" ".join(text for text in own if text)),
                    score=candidate[0].score if len(parts) == 1 else joint_score(candidate, search),
                    log_probability=log_probability,
                    tokens=self.tokenizers.target.pieces([token for one in candidate for token in one.tokens]),
                    finished=all(one.finished for one in candidate),
                    heads=joint_attention(candidate),
                )
            )
        if len(parts) > 1:
            nbest.sort(key=lambda one: (not one.finished, -one.score))
        return Translation(nbest, source_tokens, len(parts), truncated)
