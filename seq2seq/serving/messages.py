"""Messages of `POST /translate`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import METRICS, References, sentence_scores
from seq2seq.inference.translation import Translation
from seq2seq.search import METHODS, Search, with_n_best, with_options
from seq2seq.serving.request_limits import Limits
from seq2seq.serving.sizes import WIDTHS, Source, longest_output, search_size


class SearchOptions(BaseModel):
    """Options of a search. Without `method` they change the model's own search, with it the defaults of that method."""

    model_config = ConfigDict(extra="forbid")

    method: Literal["beam", "greedy", "sampling"] | None = None
    beam_size: int | None = Field(default=None, description="beam: hypotheses kept at each step")
    diverse_groups: int | None = Field(default=None, description="beam: groups of beams that differ from one another")
    diversity_strength: float | None = Field(default=None, description="beam: penalty for what earlier groups chose")
    temperature: float | None = Field(default=None, description="sampling: draw from p ** (1 / temperature)")
    top_k: int | None = Field(default=None, description="sampling: among the most probable tokens, 0 for all")
    top_p: float | None = Field(default=None, description="sampling: among the fewest that reach this probability")
    seed: int | None = Field(default=None, description="sampling: the same seed draws the same")
    length_penalty: float | None = Field(default=None, description="exponent of the length that scores are divided by")
    normalization: Literal["power", "gnmt"] | None = None
    coverage_penalty: float | None = None
    max_length_a: float | None = Field(default=None, description="a translation has at most a * source + b tokens")
    max_length_b: float | None = None
    min_length_a: float | None = Field(default=None, description="and at least a * source + b")
    min_length_b: float | None = None
    no_repeat_ngram: int | None = Field(default=None, description="n > 0: no n tokens in a row occur twice")
    suppress_unknown: bool | None = Field(default=None, description="never generate the unknown token")
    shortlist: int | None = Field(default=None, description="n > 0: only n translations of each source token; 0: any")


class TranslateRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str | list[str] = Field(description="one text, or several", examples=["the man sees the dog ."])
    model: str | None = Field(default=None, description="a name from /models; the first model if not given")
    search: SearchOptions | None = None
    n_best: int | None = Field(
        default=None, description="translations of each text; as many as the search returns if not given"
    )
    alignment: bool = Field(default=False, description="add attention, target tokens by source tokens, mean over heads")
    heads: bool = Field(default=False, description="add each head's attention too")
    reference: str | list[str] | None = Field(
        default=None, description="right translations, one per text; adds sentence scores of the best candidate"
    )

    @property
    def texts(self) -> list[str]:
        return [self.text] if isinstance(self.text, str) else self.text

    @property
    def references(self) -> list[str] | None:
        return [self.reference] if isinstance(self.reference, str) else self.reference

    def check(self, limits: Limits) -> None:
        """Raises UserError for texts that are too long or too many."""
        if len(self.texts) > limits.texts:
            raise UserError(f"{len(self.texts)} texts in one request; at most {limits.texts} are allowed")
        for name, texts in (("text", self.texts), ("reference", self.references or [])):
            for place, text in enumerate(texts):
                if len(text) > limits.text:
                    raise UserError(f"{name} {place + 1} has {len(text)} characters; at most {limits.text} are allowed")
        if self.references is not None and len(self.references) != len(self.texts):
            raise UserError(f"{len(self.references)} references were given for {len(self.texts)} texts; give one each")


class CandidateMessage(BaseModel):
    text: str
    score: float = Field(description="ranks the candidates")
    log_probability: float
    tokens: list[str]
    finished: bool = Field(description="false: cut at the maximum length")
    alignment: list[list[float]] | None = Field(default=None, description="tokens x source_tokens")
    heads: list[list[list[float]]] | None = Field(default=None, description="heads x tokens x source_tokens")


class _TranslationMessage(CandidateMessage):
    source_tokens: list[str]
    parts: int = Field(description="number of parts that a long text was cut into")
    truncated: bool
    n_best: list[CandidateMessage] = Field(
        description="all candidates, best first; in beam search no two have the same text"
    )


SENTENCE_SCORES: dict[str, Any] = {
    metric.key: (float | None, Field(default=None, description=f"sentence {metric.name} against the reference"))
    for metric in METRICS.values()
    if metric.quick and metric.scorer
}

TranslationMessage = create_model("TranslationMessage", __base__=_TranslationMessage, **SENTENCE_SCORES)


class TranslateResponse(BaseModel):
    """The values that `seq2seq translate format=jsonl` prints, one entry per text, in order."""

    model: str
    translations: list[TranslationMessage]  # type: ignore[valid-type]


class Problem(BaseModel):
    detail: str = Field(description="the error in one sentence")


def resolve_search(
    options: SearchOptions | None,
    n_best: int | None,
    own: Search,
    limits: Limits,
    longest: int,
    sources: Sequence[Source],
) -> Search:
    """The search of a request on a model whose own search is `own`.

    longest: source tokens that go through the model at once, at most. sources: the request's texts.

    Raises:
        UserError: an option that the method does not have, a value that it refuses, or one above the limits.
    """
    options = options or SearchOptions()
    given = options.model_dump(exclude_none=True, exclude={"method"})
    search = with_n_best(with_options(METHODS[options.method]() if options.method else own, given), n_best)
    if search == own:
        return search
    width = WIDTHS.get(type(search))
    if width is not None and getattr(search, width) > limits.beam_size:
        raise UserError(f"search.{width}={getattr(search, width)}: at most {limits.beam_size} is allowed")
    if longest_output(search, Source(longest + 1, 1)) > limits.output:
        raise UserError(
            f"search.max_length_a and max_length_b allow translations of more than {limits.output} tokens; lower them"
        )
    for place, source in enumerate(sources):
        if (size := search_size(search, source)) > limits.search:
            raise UserError(
                f"all beams or samples of text {place + 1} together could have {size} tokens; at most {limits.search} "
                "are allowed: lower search.beam_size, n_best, max_length_a or max_length_b, or shorten the text"
            )
    return search


def render(model: str, translations: Sequence[Translation], heads: bool, references: Sequence[str] | None) -> bytes:
    """The body of a `TranslateResponse`."""
    records = [translation.record(heads) for translation in translations]
    if references is not None and records:
        scores = sentence_scores({model: [one.text for one in translations]}, References(references))[model]
        for place, record in enumerate(records):
            record.update({metric: round(values[place], 2) for metric, values in scores.items()})
    text = json.dumps({"model": model, "translations": records}, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")
