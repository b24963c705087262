"""Writing a model for other engines, and making sure that it still says the same there."""

from __future__ import annotations

import json
import math
import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from seq2seq.attention.multihead import MultiHeadAttention
from seq2seq.errors import UserError
from seq2seq.inference.bundle import CARD, CONFIG, Bundle, count_parameters, replace_folder
from seq2seq.inference.card import model_card
from seq2seq.inference.ctranslate2_engine import (
    BOS_PIECE,
    EOS_PIECE,
    SECTION,
    CTranslate2Engine,
    Export,
    import_ctranslate2,
)
from seq2seq.inference.engines import Engine, Ids, TorchEngine
from seq2seq.interfaces import UNK
from seq2seq.layers.embedding import PositionedEmbedding
from seq2seq.layers.positions import AddedPositions, LearnedPositions, NoPositions
from seq2seq.layers.transformer import FeedForward, PreNorm
from seq2seq.models.encoder_decoder import EncoderDecoder
from seq2seq.models.transformer import TransformerDecoder, TransformerEncoder
from seq2seq.search import BeamSearch, GreedySearch, Search
from seq2seq.search.scoring import Scored

QUANTIZATIONS = ("int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32")
POSITIONS = 4096
"""Positions that an exported model has where ours has no last one."""
TOLERANCE = 1e-3
"""Greatest difference of a token's log-probability in float32, and what counts as a tie between two tokens."""
BATCH_TOKENS = 4096


@dataclass(frozen=True)
class Verification:
    """An exported model against ours, on a sample of `segments` sources.

    log_probability: greatest difference of a token's log-probability in our greedy translations. greedy and beam:
    shares of segments with the same tokens (beam: under the bundle's own search, where the two engines' methods differ
    a little). ties: segments whose greedy tokens part where two tokens are equally probable; counted as the same.
    """

    segments: int
    log_probability: float
    greedy: float
    ties: int
    beam: float | None

    def __str__(self) -> str:
        beam = "" if self.beam is None else f", its own search in {self.beam:.1%}"
        return (
            f"verified on {self.segments} segments: greedy search gives the same tokens in {self.greedy:.1%}{beam}; "
            f"log-probabilities of tokens differ by at most {self.log_probability:.2g}"
        )


def export_ctranslate2(
    bundle: Bundle,
    folder: str | Path,
    quantization: str | None = None,
    sample: Sequence[str] | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> Verification:
    """Write a Transformer as a folder for CTranslate2, once it is verified on `sample` (None: random tokens).

    quantization: one of QUANTIZATIONS; None keeps float32. metrics: as in a run's metrics.json, for the model card.

    Raises:
        UserError: a model that CTranslate2 cannot express, a float32 export that does not agree with ours, or
            CTranslate2 is not installed.
    """
    if quantization is not None and quantization not in QUANTIZATIONS:
        raise UserError(f"quantization={quantization!r} is unknown; choose null, {', '.join(QUANTIZATIONS)}")
    refuse_inexpressible(bundle.model)
    library = import_ctranslate2()
    spec = transformer_spec(library.specs, bundle.model)
    spec.register_source_vocabulary(bundle.tokenizers.source.pieces(range(len(bundle.tokenizers.source))))
    spec.register_target_vocabulary(bundle.tokenizers.target.pieces(range(len(bundle.tokenizers.target))))
    spec.validate()
    spec.optimize(quantization=quantization)
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        spec.save(str(temporary))
        bundle.tokenizers.save(temporary)
        section = {
            "quantization": quantization or "float32",
            "positions": spec.decoder.position_encodings.encodings.shape[0],
        }
        config = {**bundle.config, SECTION: section}
        engine = CTranslate2Engine(Export(temporary, bundle.tokenizers, config))
        sources = sample_ids(bundle, sample, section["positions"])
        found = verify(TorchEngine([bundle.model]), engine, sources, bundle.search)
        if quantization in (None, "float32") and (found.greedy < 1 or found.log_probability > TOLERANCE):
            raise UserError(f"the export does not agree with the model and was not kept: {found}")
        section["verified"] = asdict(found)
        text = yaml.safe_dump(json.loads(json.dumps(config)), sort_keys=False, allow_unicode=True)
        (temporary / CONFIG).write_text(text, encoding="utf-8")
        card = model_card(config, count_parameters(bundle.model), metrics)
        (temporary / CARD).write_text(card, encoding="utf-8")
        temporary.chmod(0o755)
        replace_folder(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return found


def refuse_inexpressible(model: nn.Module) -> None:
    """Raises UserError unless CTranslate2 can express the model."""
    if not isinstance(model, EncoderDecoder) or not (
        isinstance(model.encoder, TransformerEncoder) and isinstance(model.decoder, TransformerDecoder)
    ):
        raise UserError(
            "format=ctranslate2 is for model=transformer only: CTranslate2 has no recurrent or convolutional "
            "translation models\nformat=bundle carries every model."
        )
    for side in (model.encoder, model.decoder):
        if side.rotary is not None:
            raise UserError("a model with model.positions=rotary cannot be exported for CTranslate2; use format=bundle")
        if not isinstance(side.embed.positions, AddedPositions | NoPositions):
            raise UserError("a model with model.position_width cannot be exported for CTranslate2; use format=bundle")
        attentions = [module for module in side.modules() if isinstance(module, MultiHeadAttention)]
        if any(attention.window is not None for attention in attentions):
            raise UserError("a model with model.window cannot be exported for CTranslate2; use format=bundle")


def transformer_spec(specs: Any, model: Any) -> Any:
    """CTranslate2's description of our Transformer, without vocabularies. specs: the module ctranslate2.specs."""
    encoder, decoder = model.encoder, model.decoder
    heads = encoder.layers[0].self_attention.heads
    spec = specs.TransformerSpec.from_config(
        (len(encoder.layers), len(decoder.layers)),
        heads,
        pre_norm=isinstance(encoder.layers[0].feed_forward_residual, PreNorm),
        alignment_layer=decoder.alignment_layer,
        alignment_heads=heads,
    )
    spec.config.decoder_start_token = BOS_PIECE
    spec.config.bos_token = BOS_PIECE
    spec.config.eos_token = EOS_PIECE
    spec.config.layer_norm_epsilon = encoder.layers[0].feed_forward_residual.norm.eps
    for own, theirs, embeddings in (
        (encoder, spec.encoder, spec.encoder.embeddings[0]),
        (decoder, spec.decoder, spec.decoder.embeddings),
    ):
        embeddings.weight = array(own.embed.embedding.weight)
        theirs.position_encodings.encodings = position_vectors(own.embed)
        if isinstance(own.norm, nn.LayerNorm):
            set_norm(theirs.layer_norm, own.norm)
        for layer, described in zip(own.layers, theirs.layer, strict=True):
            set_attention(described.self_attention, layer.self_attention, layer.self_attention_residual.norm)
            set_feed_forward(described.ffn, layer.feed_forward, layer.feed_forward_residual.norm)
            if own is decoder:
                set_attention(described.attention, layer.cross_attention, layer.cross_attention_residual.norm, True)
    spec.decoder.projection.weight = array(model.output.weight)
    if model.output.bias is not None:
        spec.decoder.projection.bias = array(model.output.bias)
    return spec


def set_attention(spec: Any, attention: MultiHeadAttention, norm: nn.LayerNorm, over_memory: bool = False) -> None:
    """Ours packs queries, keys and values in this order; attention over a memory has its queries apart."""
    set_norm(spec.layer_norm, norm)
    width = attention.width
    bounds = [0, width, 3 * width] if over_memory else [0, 3 * width]
    for part, low, high in zip(spec.linear[:-1], bounds, bounds[1:], strict=False):
        part.weight = array(attention.in_weight[low:high])
        part.bias = array(attention.in_bias[low:high])
    set_linear(spec.linear[-1], attention.output)


def set_feed_forward(spec: Any, layer: FeedForward, norm: nn.LayerNorm) -> None:
    set_norm(spec.layer_norm, norm)
    set_linear(spec.linear_0, layer.hidden)
    set_linear(spec.linear_1, layer.output)


def set_linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight = array(linear.weight)
    spec.bias = array(linear.bias)


def set_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma = array(norm.weight)
    spec.beta = array(norm.bias)


def position_vectors(embed: PositionedEmbedding) -> Any:
    """(positions, D): those that were learned, or the first POSITIONS."""
    positions = embed.positions
    if not isinstance(positions, AddedPositions):
        return array(torch.zeros(POSITIONS, embed.embedding.weight.shape[1]))
    vectors = positions.positions
    count = vectors.maximum if isinstance(vectors, LearnedPositions) else POSITIONS
    return array(vectors.vectors(count, 0))


def array(tensor: Tensor) -> Any:
    """A float32 copy in numpy; CTranslate2 quantises it in place."""
    return tensor.detach().float().cpu().clone().numpy()


def sample_ids(bundle: Bundle, sample: Sequence[str] | None, positions: int) -> list[list[int]]:
    """Token ids of the sample's texts that are neither blank nor too long; without a sample, 32 random sources."""
    if sample is None:
        draw, size = random.Random(0), len(bundle.tokenizers.source)
        return [[draw.randrange(UNK + 3, size) for _ in range(draw.randint(1, 30))] for _ in range(32)]
    encoded = bundle.tokenizers.source.encode(list(sample))
    kept = [ids for ids in encoded if 0 < len(ids) < min(positions, 200)]
    if not kept:
        raise UserError("the sample has no line to verify the export with: all are blank or too long")
    return kept


def verify(ours: Engine, theirs: Engine, sources: Sequence[Ids], search: Search) -> Verification:
    """Compare two engines' greedy translations, their scores, and the translations of `search`."""
    greedy = GreedySearch()
    wanted, found = (
        [best.tokens for best, *_ in engine.decode(sources, greedy, BATCH_TOKENS)] for engine in (ours, theirs)
    )
    one, other = (engine.score(sources, wanted, greedy.ranking, BATCH_TOKENS) for engine in (ours, theirs))
    difference = max(
        abs(a - b)
        for left, right in zip(one, other, strict=True)
        for a, b in zip(left.token_log_probabilities, right.token_log_probabilities, strict=True)
    )
    apart = [place for place, tokens in enumerate(found) if tokens != wanted[place]]
    again = ours.score([sources[p] for p in apart], [found[p] for p in apart], greedy.ranking, BATCH_TOKENS)
    ties = sum(is_tie(one[place], scored) for place, scored in zip(apart, again, strict=True))
    beam = None
    if isinstance(search, BeamSearch) and search.beam_size > 1:
        plain = BeamSearch(beam_size=search.beam_size, length_penalty=search.length_penalty)
        lists = [engine.decode(sources, plain, BATCH_TOKENS) for engine in (ours, theirs)]
        beam = sum(a[0].tokens == b[0].tokens for a, b in zip(*lists, strict=True)) / len(sources)
    same = (len(sources) - len(apart) + ties) / len(sources)
    return Verification(len(sources), difference if math.isfinite(difference) else math.inf, same, ties, beam)


def is_tie(one: Scored, other: Scored) -> bool:
    """Whether the first tokens in which two outputs differ are equally probable."""
    place = next(
        (p for p, (a, b) in enumerate(zip(one.tokens, other.tokens, strict=False)) if a != b),
        min(len(one.tokens), len(other.tokens)),
    )
    return abs(one.token_log_probabilities[place] - other.token_log_probabilities[place]) <= TOLERANCE
