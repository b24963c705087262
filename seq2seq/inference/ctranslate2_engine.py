"""Running Transformers that were exported for CTranslate2 (model.bin, config.json, vocabularies). Needs the extra
`ctranslate2`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from seq2seq.errors import UserError
from seq2seq.inference.engines import Ids, batches, by_batches, pair_lengths, source_lengths
from seq2seq.inference.export_folder import Export, import_library
from seq2seq.inference.forking import PerProcess, limit_threads_after_fork
from seq2seq.interfaces import EOS, EOS_PIECE, Hypothesis
from seq2seq.search import BeamSearch, GreedySearch, Search
from seq2seq.search.beam import unique
from seq2seq.search.forced_decoding import Scored
from seq2seq.search.penalties import Ranking

PAD_PIECE, BOS_PIECE = "<pad>", "<s>"
SENTENCES = 64
"""Sentences that one thread translates at a time: CTranslate2 is fastest with a batch for each thread."""


@dataclass(frozen=True)
class Task:
    """Sources, the maximum and minimum number of tokens of each before EOS, and options of translate_batch."""

    sources: Sequence[Ids]
    limits: Sequence[int]
    minima: Sequence[int]
    options: dict[str, Any]


class CTranslate2Engine:
    """`engines.Engine` by CTranslate2.

    Greedy search finds what this package's own search finds. Beam search differs in two points: CTranslate2 fills the
    places of finished hypotheses with further live ones, and it stops once beam_size hypotheses have finished, even if
    a live one could still win. Where tokens are forbidden (suppress_unknown, no_repeat_ngram, a minimum length), it
    distributes their probability over the others before scoring. Sampling, forced prefixes, diverse groups, GNMT
    normalization, coverage penalty, min_length_a and shortlists are refused. Outputs are no longer than the model's
    positions.
    """

    def __init__(self, export: Export, device: torch.device | str = "cpu") -> None:
        """Raises UserError if CTranslate2 is not installed or cannot read the folder."""
        device = torch.device(device)
        self.models: list[Any] = []
        positions = export.section.get("positions")
        if not isinstance(positions, int) or positions < 2:
            raise UserError(f"{export.folder}: its configuration lacks positions: the export is damaged")
        self.longest_source: int = positions - 1
        self.longest_output: int = positions - 1
        self._pieces = [side.pieces(range(len(side))) for side in (export.tokenizers.source, export.tokenizers.target)]
        self._ids = {piece: number for number, piece in enumerate(self._pieces[1])}
        self._loaded = PerProcess(partial(load, export.folder.absolute(), device))

    @property
    def _translator(self) -> Any:
        return self._loaded.get()

    def check(self, search: Search) -> None:
        decoding_options(search)

    def decode(
        self,
        sources: Sequence[Ids],
        search: Search,
        max_tokens: int,
        *,
        prefixes: Sequence[Ids] | None = None,
        numbers: Sequence[int] | None = None,
        with_weights: bool = False,
    ) -> list[list[Hypothesis]]:
        if prefixes is not None and any(prefixes):
            raise UserError("forced prefixes are not available with engine=ctranslate2; use the run or its bundle")
        options = {**decoding_options(search), "return_attention": with_weights}
        assert isinstance(search, BeamSearch | GreedySearch)
        lengths = source_lengths(sources)
        limits = [self._limit(search, length) for length in lengths]
        minima = [min(limit, int(search.min_length_b)) for limit in limits]
        task = Task(sources, limits, minima, options)
        beams = options["beam_size"] > 1
        waiting = [
            (place, *submitted)
            for places in batches(lengths, max_tokens)
            for place, submitted in zip(places, self._submit(task, places), strict=True)
        ]
        first = []
        if with_weights and beams:
            first = by_batches(lengths, max_tokens, lambda places: self._first_step(sources[place] for place in places))
        norms = divisors(search.ranking, max(limits, default=0) + 1)
        n_best = search.n_best if isinstance(search, BeamSearch) else 1
        found: list[list[Hypothesis]] = [[] for _ in sources]
        past = []
        for place, promise, used in waiting:  # in the order of their translation, while later ones continue
            result, limit = promise.result(), limits[place]
            outputs = result.hypotheses
            if beams and used > limit and max(map(len, outputs)) > limit:
                past.append(place)
            found[place] = self._hypotheses(result, outputs[:n_best], limit, norms)
        # A call has one limit for all of its sources. Greedy outputs can be cut afterwards; a beam that reached its own
        # limit is searched again with that limit: the last hypothesis to finish is among those returned.
        past.sort(key=lambda place: (minima[place], limits[place]))
        for place, (promise, _) in zip(past, self._submit(task, past, of_one_limit=True), strict=True):
            result = promise.result()
            found[place] = self._hypotheses(result, result.hypotheses[:n_best], limits[place], norms)
        for hypotheses, promise in zip(found, first, strict=False):
            for one in hypotheses:
                assert one.weights is not None
                one.weights[:1] = torch.tensor(promise.result().attention[0][0])
        return self._finish_cut(sources, found, search.ranking, max_tokens)

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids], ranking: Ranking, max_tokens: int) -> list[Scored]:
        refuse_ranking(ranking)

        def submit(places: list[int]) -> list[Any]:
            promises: list[Any] = self._translator.score_batch(
                self._source_pieces(sources[place] for place in places),
                [[self._pieces[1][token] for token in targets[place]] for place in places],
                max_input_length=0,
                max_batch_size=SENTENCES,
                asynchronous=True,
            )
            return promises

        found = []
        norms = divisors(ranking, max(map(len, targets), default=0) + 1)
        for target, promise in zip(
            targets, by_batches(pair_lengths(sources, targets), max_tokens, submit), strict=True
        ):
            values = list(promise.result().log_probs)
            found.append(Scored(list(target), values, sum(values), sum(values) / norms[len(values)]))
        return found

    def _submit(self, task: Task, places: Sequence[int], of_one_limit: bool = False) -> list[tuple[Any, int]]:
        """Start translating these places of the task; for each a promise, and the limit of the call that it is part of.

        A call has one minimum. of_one_limit: it has one limit too, else the largest of its sources.
        """
        promises: list[tuple[Any, int]] = []
        for _, group in groupby(places, lambda place: (task.minima[place], of_one_limit and task.limits[place])):
            same = list(group)
            limit = max(task.limits[place] for place in same)
            results = self._translator.translate_batch(
                self._source_pieces(task.sources[place] for place in same),
                max_decoding_length=limit + 1,
                min_decoding_length=task.minima[same[0]],
                max_batch_size=SENTENCES,
                asynchronous=True,
                **task.options,
            )
            promises += [(result, limit) for result in results]
        return promises

    def _source_pieces(self, sources: Iterable[Ids]) -> list[list[str]]:
        pieces = self._pieces[0]
        return [[*(pieces[token] for token in source), EOS_PIECE] for source in sources]

    def _first_step(self, sources: Iterable[Ids]) -> list[Any]:
        """Attention of the first step, which no choice has influenced yet. (After beam search, CTranslate2 4.8 gives
        every sentence of a batch the first row of the first sentence.)"""
        results: list[Any] = self._translator.translate_batch(
            self._source_pieces(sources),
            beam_size=1,
            max_decoding_length=1,
            max_input_length=0,
            return_attention=True,
            asynchronous=True,
        )
        return results

    def _limit(self, search: BeamSearch | GreedySearch, length: int) -> int:
        """Most tokens before EOS for a source of `length` tokens."""
        return min(max(1, int(search.max_length_a * length + search.max_length_b)), self.longest_output)

    def _hypotheses(
        self, result: Any, outputs: Sequence[list[str]], limit: int, norms: list[float]
    ) -> list[Hypothesis]:
        """The first hypotheses of a result, whose pieces are `outputs`."""
        found, scores, attention = [], result.scores, result.attention
        for number, pieces in enumerate(outputs):
            ids = [self._ids[piece] for piece in pieces]
            finished = bool(ids) and ids[-1] == EOS and len(ids) <= limit + 1
            tokens = ids[:-1] if finished else ids[:limit]
            score = float(scores[number])
            weights = None
            if attention:
                weights = torch.tensor(attention[number])[: len(tokens) + finished].unsqueeze(1)
            log_probability = score * norms[len(ids)]
            found.append(Hypothesis(tokens, log_probability, score, finished, weights))
        return found

    def _finish_cut(
        self, sources: Sequence[Ids], found: list[list[Hypothesis]], ranking: Ranking, max_tokens: int
    ) -> list[list[Hypothesis]]:
        """Score cut outputs by the tokens that they kept and put them after finished ones; of equal ones, keep one."""
        cut = [(place, one) for place, row in enumerate(found) for one in row if not one.finished]
        if not cut:
            return found
        scored = self.score([sources[place] for place, _ in cut], [one.tokens for _, one in cut], ranking, max_tokens)
        norms = divisors(ranking, max(len(one.tokens) for _, one in cut))
        for (_, one), values in zip(cut, scored, strict=True):
            one.log_probability = sum(values.token_log_probabilities[:-1])
            one.score = one.log_probability / norms[len(one.tokens)]
        ranked = (sorted(row, key=lambda one: (not one.finished, -one.score)) for row in found)
        return [unique(row, len(row)) for row in ranked]


def load(folder: Path, device: torch.device) -> Any:
    """CTranslate2's own translator. Raises UserError if the library is not installed or cannot read the folder."""
    limit_threads_after_fork()
    library = import_library("ctranslate2", "ctranslate2")
    try:
        return library.Translator(
            str(folder),
            device=device.type,
            device_index=device.index or 0,
            inter_threads=torch.get_num_threads() if device.type == "cpu" else 1,
            intra_threads=1,
            max_queued_batches=-1,
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{folder}: CTranslate2 cannot load it: {str(error).splitlines()[0]}") from error


def decoding_options(search: Search) -> dict[str, Any]:
    """The options of CTranslate2's translate_batch for a search. Raises UserError for options that it does not have."""
    if not isinstance(search, BeamSearch | GreedySearch):
        raise UserError("engine=ctranslate2 searches with search=greedy or search=beam only")
    refuse_ranking(search.ranking)
    if search.min_length_a:
        raise UserError("search.min_length_a is not available with engine=ctranslate2; use search.min_length_b")
    if search.shortlist:
        raise UserError("search.shortlist is not available with engine=ctranslate2; use the run or its bundle")
    beams = 1
    if isinstance(search, BeamSearch):
        beams = search.beam_size
        if search.diverse_groups > 1:
            raise UserError("search.diverse_groups is not available with engine=ctranslate2")
    return {
        "beam_size": beams,
        "num_hypotheses": beams,
        "length_penalty": search.length_penalty,
        "no_repeat_ngram_size": search.no_repeat_ngram,
        "disable_unk": search.suppress_unknown,
        "suppress_sequences": [[PAD_PIECE], [BOS_PIECE]],
        "max_input_length": 0,
        "return_scores": True,
        "return_end_token": True,
    }


def refuse_ranking(ranking: Ranking) -> None:
    """Raises UserError for scores that CTranslate2 cannot rank by."""
    if ranking.length_penalty and ranking.normalization != "power":
        raise UserError("search.normalization=gnmt is not available with engine=ctranslate2; it has power")
    if ranking.coverage_penalty:
        raise UserError("search.coverage_penalty is not available with engine=ctranslate2")


def divisors(ranking: Ranking, longest: int) -> list[float]:
    """`Ranking.norm` of each length from 0 to `longest`."""
    norms: list[float] = ranking.norm(torch.arange(longest + 1)).tolist()
    return norms
