"""Engines run a model for the translator: token ids in, hypotheses out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from seq2seq.attention import lengths_to_mask
from seq2seq.errors import UserError, out_of_memory
from seq2seq.inference.forking import limit_threads_after_fork
from seq2seq.interfaces import EOS, PAD, Hypothesis
from seq2seq.search import Search, Shortlist, decode_batch, score_pairs
from seq2seq.search.forced_decoding import Scored
from seq2seq.search.penalties import NO_COVERAGE, Ranking

Ids = Sequence[int]
"""Token ids without BOS and EOS."""
Result = TypeVar("Result")
Run = Callable[[list[int]], Sequence[Result]]
"""Places of items that share a batch -> the result of each."""


class Engine(Protocol):
    """Runs a model. Results are in the order of `sources` and do not depend on the batches, each of which has at most
    max_tokens source tokens, padding included (or one source)."""

    @property
    def models(self) -> list[Any]:
        """The models (`interfaces.Model`) if this package's search runs over them, else []."""
        ...

    @property
    def longest_source(self) -> int | None:
        """Most tokens of a source, without EOS; None: any number."""
        ...

    @property
    def longest_output(self) -> int | None:
        """Most tokens of a translation, without EOS; None: any number."""
        ...

    def check(self, search: Search) -> None:
        """Raises UserError for a search that this engine cannot do with its model."""
        ...

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
        """Search for n-best lists; prefixes, numbers and with_weights as in `Search.__call__`."""
        ...

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids], ranking: Ranking, max_tokens: int) -> list[Scored]:
        """Score given targets as finished hypotheses, see `search.score_pairs`."""
        ...


class TorchEngine:
    """`Engine` of one model, or of several as an ensemble, with this package's own search."""

    def __init__(
        self, models: Sequence[Any], device: torch.device | str = "cpu", shortlist: Shortlist | None = None
    ) -> None:
        self.models = list(models)
        self.shortlist = shortlist
        self.device = torch.device(device)
        sources, outputs = ([getattr(model, name) for model in models] for name in ("longest_source", "longest_output"))
        self.longest_source = min((longest for longest in sources if longest is not None), default=None)
        self.longest_output = min((longest for longest in outputs if longest is not None), default=None)

    def check(self, search: Search) -> None:
        if search.ranking.coverage_penalty and not any(model.attends for model in self.models):
            raise UserError(NO_COVERAGE)
        self._shortlist(search)

    def _shortlist(self, search: Search) -> Shortlist | None:
        """The shortlist that a search asks for. Raises UserError if this model has none of that size."""
        wanted = getattr(search, "shortlist", 0)
        if not wanted:
            return None
        if self.shortlist is None:
            raise UserError(
                f"search.shortlist={wanted} needs a table of translations, which this model has none of\n"
                "Train with that key, and the bundle will have one; search.shortlist=0 does without."
            )
        if wanted > (most := self.shortlist.candidates.shape[1]):
            raise UserError(
                f"search.shortlist={wanted}: the model's table has {most} translations of each source token\n"
                f"Give at most {most}, or train with search.shortlist={wanted}."
            )
        return self.shortlist.first(wanted)

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
        limit_threads_after_fork()
        shortlist = self._shortlist(search)

        def decode(places: list[int]) -> list[list[Hypothesis]]:
            source, mask = self._pad([sources[place] for place in places])
            forced = [prefixes[place] for place in places] if prefixes is not None else []
            return decode_batch(
                self.models,
                search,
                source,
                mask,
                prefix=forced if any(forced) else None,
                numbers=places if numbers is None else [numbers[place] for place in places],
                with_weights=with_weights,
                shortlist=shortlist,
            )

        return by_batches(source_lengths(sources), max_tokens, partial(in_halves, decode))

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids], ranking: Ranking, max_tokens: int) -> list[Scored]:
        limit_threads_after_fork()

        def score(places: list[int]) -> list[Scored]:
            source, mask = self._pad([sources[place] for place in places])
            return score_pairs(self.models, ranking, source, mask, [targets[place] for place in places])

        return by_batches(pair_lengths(sources, targets), max_tokens, partial(in_halves, score))

    def _pad(self, sources: Sequence[Ids]) -> tuple[Tensor, Tensor]:
        rows = [torch.tensor([*ids, EOS]) for ids in sources]
        source = pad_sequence(rows, batch_first=True, padding_value=PAD)
        mask = lengths_to_mask(torch.tensor([len(row) for row in rows]), source.shape[1])
        return source.to(self.device), mask.to(self.device)


def source_lengths(sources: Sequence[Ids]) -> list[int]:
    """Tokens of each source, EOS included."""
    return [len(source) + 1 for source in sources]


def pair_lengths(sources: Sequence[Ids], targets: Sequence[Ids]) -> list[int]:
    """Tokens of the longer side of each pair, EOS included."""
    return [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]


def check_lengths(engine: Engine, sources: Sequence[Ids], targets: Sequence[Ids], done: int) -> None:
    """Raises UserError for the first pair with more tokens than the engine has positions for. done: number of pairs
    before these."""
    for name, side, longest in (
        ("source", sources, engine.longest_source),
        ("translation", targets, engine.longest_output),
    ):
        for number, ids in enumerate(side, done + 1):
            if longest is not None and len(ids) > longest:
                raise UserError(
                    f"the {name} of pair {number} has {len(ids)} tokens, but the model has positions for {longest}\n"
                    "Leave it out or shorten it."
                )


def by_batches(lengths: Sequence[int], max_tokens: int, run: Run[Result]) -> list[Result]:
    """The results of `run` for each item, in the order of `lengths`, in batches as in `batches`."""
    found: dict[int, Result] = {}
    for places in batches(lengths, max_tokens):
        found.update(zip(places, run(places), strict=True))
    return [found[place] for place in range(len(lengths))]


def in_halves(run: Run[Result], places: list[int]) -> list[Result]:
    """Call `run`; where memory runs out, with half of the places at a time."""
    try:
        return list(run(places))
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error) or len(places) == 1:
            raise
    middle = len(places) // 2
    return in_halves(run, places[:middle]) + in_halves(run, places[middle:])


def batches(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Places in `lengths`, longest first, in batches whose padded size is at most max_tokens (or one item)."""
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    start = 0
    while start < len(order):
        size = max(1, max_tokens // lengths[order[start]])
        yield order[start : start + size]
        start += size
