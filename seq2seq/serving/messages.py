"""What clients send and receive at `POST /translate`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from seq2seq.errors import UserError
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Batching, with_n_best
from seq2seq.search import BeamSearch, GreedySearch, Sampling, Search
from seq2seq.serving.limits import Limits
from seq2seq.serving.served import METHODS, method_name


class SearchOptions(BaseModel):
    """Without `method`, what is given changes the model's own search; with it, that method's defaults."""

    model_config = ConfigDict(extra="forbid")

    method: Literal["beam", "greedy", "sampling"] | None = None
    beam_size: int | None = Field(default=None, description="beam: hypotheses kept at each step")
    diverse_groups: int | None = Field(default=None, description="beam: groups of beams that avoid one another")
    diversity_strength: float | None = Field(default=None, description="beam: how much they do")
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


class TranslateRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str | list[str] = Field(description="one text, or several", examples=["the man sees the dog ."])
    model: str | None = Field(default=None, description="a name from /models; the first model if not given")
    search: SearchOptions = SearchOptions()
    n_best: int | None = Field(
        default=None, description="translations of each text; what the search returns if not given"
    )
    alignment: bool = Field(default=False, description="add attention, target tokens by source tokens, mean over heads")
    heads: bool = Field(default=False, description="add each head's attention too")
    reference: str | list[str] | None = Field(
        default=None, description="right translations, one a text; adds sentence chrF and BLEU of the best candidate"
    )

    @property
    def texts(self) -> list[str]:
        return [self.text] if isinstance(self.text, str) else self.text

    @property
    def references(self) -> list[str] | None:
        return [self.reference] if isinstance(self.reference, str) else self.reference

    def check(self, limits: Limits) -> None:
        """Raises UserError for what is too long or too many."""
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
    score: float = Field(description="what ranks candidates")
    log_probability: float
    tokens: list[str]
    finished: bool = Field(description="false: cut at the maximum length")
    alignment: list[list[float]] | None = Field(default=None, description="tokens x source_tokens")
    heads: list[list[list[float]]] | None = Field(default=None, description="heads x tokens x source_tokens")


class TranslationMessage(CandidateMessage):
    source_tokens: list[str]
    parts: int = Field(description="into how many parts a long text was cut")
    truncated: bool
    n_best: list[CandidateMessage] = Field(description="the other candidates, best first")
    chrf: float | None = Field(default=None, description="sentence chrF against the reference, 0 to 100")
    bleu: float | None = Field(default=None, description="sentence BLEU against the reference, 0 to 100")


class TranslateResponse(BaseModel):
    """The same values that `seq2seq translate format=jsonl` prints, one entry a text, in order."""

    model: str
    translations: list[TranslationMessage]


class Problem(BaseModel):
    detail: str = Field(description="what is wrong, in a sentence")


def resolve_search(
    options: SearchOptions, n_best: int | None, own: Search, limits: Limits, batching: Batching
) -> Search:
    """The search of a request on a model whose own search is `own`.

    Raises:
        UserError: an option that the method does not have, a value that it refuses, or one above the limits.
    """
    given = options.model_dump(exclude_none=True, exclude={"method"})
    method = options.method or method_name(own)
    kind = METHODS[method]
    foreign = sorted(given.keys() - {field.name for field in fields(kind)})
    if foreign:
        raise UserError(f"search.{foreign[0]} is no option of {method} search")
    base: Any = own if options.method is None else kind()
    search = with_n_best(replace(base, **given), n_best)
    if search == own:
        return search
    width = {BeamSearch: "beam_size", Sampling: "n_best"}.get(type(search))
    if width is not None and getattr(search, width) > limits.beam_size:
        raise UserError(f"search.{width}={getattr(search, width)}: at most {limits.beam_size} is allowed")
    if longest_output(search, batching.max_source_length + 1) > limits.output:
        raise UserError(
            f"search.max_length_a and max_length_b allow translations of more than {limits.output} tokens; lower them"
        )
    return search


def longest_output(search: BeamSearch | GreedySearch | Sampling | Any, source: int) -> int:
    """Most tokens that a translation of `source` tokens may have."""
    return max(1, math.floor(search.max_length_a * source + search.max_length_b))


def attention_size(sources: Sequence[int], search: Any, heads: int) -> int:
    """Most attention weights that translations of sources of so many tokens may carry."""
    candidates = getattr(search, "n_best", 1)
    return sum(candidates * heads * source * longest_output(search, source) for source in sources)


def render(model: str, translations: Sequence[Translation], heads: bool, references: Sequence[str] | None) -> bytes:
    """The body of a `TranslateResponse`."""
    records = [translation.record(heads) for translation in translations]
    if references is not None and records:
        from seq2seq.evaluation.metrics import sentence_scores

        scores = sentence_scores({model: [one.text for one in translations]}, references)[model]
        for place, record in enumerate(records):
            record.update({metric: round(values[place], 2) for metric, values in scores.items()})
    text = json.dumps({"model": model, "translations": records}, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")
