"""What runs a model for the translator: token ids in, hypotheses out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from seq2seq.interfaces import EOS, PAD, Hypothesis
from seq2seq.search import Search, decode_batch, score_pairs
from seq2seq.search.penalties import Ranking
from seq2seq.search.scoring import Scored

Ids = Sequence[int]
"""Token ids without BOS and EOS."""


class Engine(Protocol):
    """Results come in the order of `sources` and do not depend on how they share batches, each of which has at most
    max_tokens source tokens, padding included (or one source)."""

    @property
    def models(self) -> list[Any]:
        """The models (`interfaces.Model`) if torch runs them, else []."""
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
        """N-best lists; prefixes, numbers and with_weights as in `Search.__call__`."""
        ...

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids], ranking: Ranking, max_tokens: int) -> list[Scored]:
        """Given targets as finished hypotheses, see `search.score_pairs`."""
        ...


class TorchEngine:
    """`Engine` of one model, or of several as an ensemble, with this package's own search."""

    def __init__(self, models: Sequence[Any], device: torch.device | str = "cpu") -> None:
        self.models = list(models)
        self.device = torch.device(device)

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
        found: list[list[Hypothesis]] = [[] for _ in sources]

        def decode(places: list[int]) -> None:
            """One batch; where memory runs out, half of it at a time."""
            source, mask = self._pad([sources[place] for place in places])
            forced = [prefixes[place] for place in places] if prefixes is not None else None
            own = [numbers[place] for place in places] if numbers is not None else places
            try:
                lists = decode_batch(
                    self.models,
                    search,
                    source,
                    mask,
                    prefix=forced if forced and any(forced) else None,
                    numbers=own,
                    with_weights=with_weights,
                )
            except torch.OutOfMemoryError:
                if len(places) == 1:
                    raise
            else:
                for place, hypotheses in zip(places, lists, strict=True):
                    found[place] = hypotheses
                return
            decode(places[: len(places) // 2])
            decode(places[len(places) // 2 :])

        for batch in batches([len(source) + 1 for source in sources], max_tokens):
            decode(batch)
        return found

    def score(self, sources: Sequence[Ids], targets: Sequence[Ids], ranking: Ranking, max_tokens: int) -> list[Scored]:
        found: dict[int, Scored] = {}
        lengths = [max(len(source), len(target)) + 1 for source, target in zip(sources, targets, strict=True)]
        for batch in batches(lengths, max_tokens):
            source, mask = self._pad([sources[place] for place in batch])
            scored = score_pairs(self.models, ranking, source, mask, [targets[place] for place in batch])
            found.update(zip(batch, scored, strict=True))
        return [found[place] for place in range(len(sources))]

    def _pad(self, sources: Sequence[Ids]) -> tuple[Tensor, Tensor]:
        rows = [torch.tensor([*ids, EOS]) for ids in sources]
        source = pad_sequence(rows, batch_first=True, padding_value=PAD)
        lengths = torch.tensor([len(row) for row in rows])
        mask = torch.arange(source.shape[1]) < lengths[:, None]
        return source.to(self.device), mask.to(self.device)


def batches(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Places in `lengths`, longest first, in batches whose padded size is at most max_tokens (or one item)."""
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    start = 0
    while start < len(order):
        size = max(1, max_tokens // lengths[order[start]])
        yield order[start : start + size]
        start += size
