"""Writing a Transformer for CTranslate2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq.attention.multihead import MultiHeadAttention
from seq2seq.errors import UserError
from seq2seq.export.verification import Verification, sample_ids, verify
from seq2seq.files import new_folder
from seq2seq.inference.bundle import Bundle, count_parameters, write_companions
from seq2seq.inference.card import model_card
from seq2seq.inference.ctranslate2_engine import BOS_PIECE, CTranslate2Engine
from seq2seq.inference.engines import TorchEngine
from seq2seq.inference.export_folder import CTRANSLATE2, Export, import_library
from seq2seq.interfaces import EOS_PIECE
from seq2seq.layers.embedding import PositionedEmbedding
from seq2seq.layers.positions import AddedPositions, LearnedPositions, NoPositions
from seq2seq.models.encoder_decoder import EncoderDecoder
from seq2seq.models.transformer import TransformerDecoder, TransformerEncoder
from seq2seq.models.transformer_layers import FeedForward, PreNorm

QUANTIZATIONS = ("int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32")
POSITIONS = 4096
"""Positions of an exported model whose original has no limit."""


def export_ctranslate2(
    bundle: Bundle,
    folder: str | Path,
    quantization: str | None = None,
    sample: Sequence[str] | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> Verification:
    """Write a Transformer as a folder for CTranslate2, once it is verified on `sample` (None: random tokens).

    quantization: one of QUANTIZATIONS; None keeps float32. metrics: as in a run's metrics.json, for the model card (see
    `scored_run`).

    Raises:
        UserError: a model that CTranslate2 cannot express, a float32 export that does not agree with it, or
            CTranslate2 is not installed.
    """
    if quantization is not None and quantization not in QUANTIZATIONS:
        raise UserError(f"quantization={quantization!r} is unknown; choose null, {', '.join(QUANTIZATIONS)}")
    refuse_inexpressible(bundle.model)
    library = import_library("ctranslate2", "ctranslate2")
    spec = transformer_spec(library.specs, bundle.model)
    spec.register_source_vocabulary(bundle.tokenizers.source.pieces(range(len(bundle.tokenizers.source))))
    spec.register_target_vocabulary(bundle.tokenizers.target.pieces(range(len(bundle.tokenizers.target))))
    spec.validate()
    spec.optimize(quantization=quantization)
    bundle = bundle.without_shortlist()
    with new_folder(folder) as temporary:
        spec.save(str(temporary))
        positions = spec.decoder.position_encodings.encodings.shape[0]
        section: dict[str, Any] = {"quantization": quantization or "float32", "positions": positions}
        config = {**bundle.config, CTRANSLATE2: section}
        engine = CTranslate2Engine(Export(CTRANSLATE2, temporary, bundle.tokenizers, config))
        found = verify(TorchEngine([bundle.model]), engine, sample_ids(bundle, sample, positions), bundle.search)
        if quantization in (None, "float32") and not found.agrees:
            raise UserError(f"the export does not agree with the model and was not kept: {found}")
        section["verified"] = asdict(found)
        quantized = None if quantization in (None, "float32") else quantization
        if quantized is None:
            section["model"] = bundle.digest()
        card = model_card(config, count_parameters(bundle.model), metrics, str(found), quantized)
        write_companions(bundle, config, temporary, card)
    return found


def refuse_inexpressible(model: nn.Module) -> None:
    """Raises UserError unless CTranslate2 can express the model."""
    if not isinstance(model, EncoderDecoder) or not (
        isinstance(model.encoder, TransformerEncoder) and isinstance(model.decoder, TransformerDecoder)
    ):
        raise UserError(
            "format=ctranslate2 is for model=transformer only: CTranslate2 has no recurrent or convolutional "
            "translation models\nformat=onnx and format=bundle carry every model."
        )
    for side in (model.encoder, model.decoder):
        if side.rotary is not None:
            raise UserError("a model with model.positions=rotary cannot be exported for CTranslate2; use format=onnx")
        if not isinstance(side.embed.positions, AddedPositions | NoPositions):
            raise UserError("a model with model.position_width cannot be exported for CTranslate2; use format=onnx")
        attentions = [module for module in side.modules() if isinstance(module, MultiHeadAttention)]
        if any(attention.window is not None for attention in attentions):
            raise UserError("a model with model.window cannot be exported for CTranslate2; use format=onnx")


def transformer_spec(specs: Any, model: Any) -> Any:
    """CTranslate2's description of a Transformer, without vocabularies. specs: the module ctranslate2.specs."""
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
    for side, described, embeddings in (
        (encoder, spec.encoder, spec.encoder.embeddings[0]),
        (decoder, spec.decoder, spec.decoder.embeddings),
    ):
        embeddings.weight = array(side.embed.embedding.weight)
        described.position_encodings.encodings = position_vectors(side.embed)
        if isinstance(side.norm, nn.LayerNorm):
            set_norm(described.layer_norm, side.norm)
        for layer, target in zip(side.layers, described.layer, strict=True):
            set_attention(target.self_attention, layer.self_attention, layer.self_attention_residual.norm)
            set_feed_forward(target.ffn, layer.feed_forward, layer.feed_forward_residual.norm)
            if side is decoder:
                set_attention(target.attention, layer.cross_attention, layer.cross_attention_residual.norm, True)
    spec.decoder.projection.weight = array(model.output.weight)
    spec.decoder.projection.bias = array(model.output.bias)
    return spec


def set_attention(spec: Any, attention: MultiHeadAttention, norm: nn.LayerNorm, over_memory: bool = False) -> None:
    """Copy an attention layer. This package packs queries, keys and values in this order; in attention over a memory,
    CTranslate2 has the queries apart."""
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
    """Position vectors (positions, D): those that were learned, or the first POSITIONS."""
    positions = embed.positions
    if not isinstance(positions, AddedPositions):
        return array(torch.zeros(POSITIONS, embed.embedding.weight.shape[1]))
    vectors = positions.positions
    count = vectors.maximum if isinstance(vectors, LearnedPositions) else POSITIONS
    return array(vectors.vectors(count, 0))


def array(tensor: Tensor) -> Any:
    """A float32 copy in numpy; CTranslate2 quantizes it in place."""
    return tensor.detach().float().cpu().clone().numpy()
