"""A bundle: one folder with all that a translator needs.

    config.yaml         format version, model, default search, languages, vocabulary sizes
    model.safetensors   weights
    tokenizer.model     or tokenizer.source.model and tokenizer.target.model
    shortlist.safetensors  likely translations of each source token, where it was trained with search.shortlist
    README.md           the model card

Loading runs no pickle and builds only classes of this package.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seq2seq.data.tokenizer import TokenizerPair
from seq2seq.errors import UserError
from seq2seq.files import new_folder
from seq2seq.inference.bundle_config import (
    CONFIG,
    check_config,
    check_format,
    configured_languages,
    configured_search,
    describe,
)
from seq2seq.inference.card import model_card
from seq2seq.inference.export_folder import export_format
from seq2seq.inference.safe_build import Allowance, build, read_yaml
from seq2seq.run import Run
from seq2seq.search import Search, Shortlist

WEIGHTS, SHORTLIST, CARD = "model.safetensors", "shortlist.safetensors", "README.md"


@dataclass(frozen=True)
class Bundle:
    """model: in evaluation mode. config: the content of config.yaml (see `describe`)."""

    model: nn.Module
    tokenizers: TokenizerPair
    config: dict[str, Any]
    shortlist: Shortlist | None = None

    @property
    def search(self) -> Search:
        """The default search."""
        return configured_search(self.config)

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The source and target language."""
        return configured_languages(self.config)

    def without_shortlist(self) -> Bundle:
        """The same model with a default search over the whole vocabulary, for places that cannot keep the shortlist."""
        search = self.config["search"]
        if not search or not search.get("shortlist"):
            return self
        return replace(self, config={**self.config, "search": {**search, "shortlist": 0}}, shortlist=None)

    def digest(self) -> str:
        """SHA-256 of the model's settings, weights and tokenizers in hexadecimal: the identity of what was scored."""
        found = hashlib.sha256(json.dumps(self.config["model"], sort_keys=True).encode())
        for name, content in sorted(self.tokenizers.state().items()):
            found.update(f"\n{name} {len(content)}\n".encode() + content)
        for name, tensor in sorted(unique_tensors(self.model).items()):
            found.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
        return found.hexdigest()

    def save(self, folder: str | Path, metrics: Mapping[str, Any] | None = None) -> None:
        """Write the folder; an older bundle there is replaced only once the new one is whole.

        metrics: as in a run's metrics.json, for the model card; only those that this model earned (`scored_run`).
        """
        with new_folder(folder) as temporary:
            save_file(unique_tensors(self.model), temporary / WEIGHTS, metadata={"format": "pt"})
            if self.shortlist is not None:
                save_file(vars(self.shortlist), temporary / SHORTLIST)
            card = model_card(self.config, count_parameters(self.model), metrics)
            write_companions(self, self.config, temporary, card)

    @classmethod
    def load(cls, folder: str | Path, device: torch.device | str = "cpu") -> Bundle:
        """Load a bundle. Raises UserError for a part that is missing, damaged, hostile or of another format version."""
        folder = Path(folder)
        for name in (CONFIG, WEIGHTS):
            if not (folder / name).is_file():
                raise UserError(f"{folder} is not a bundle: it has no {name}")
        try:
            text = (folder / CONFIG).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{folder / CONFIG} is not UTF-8 text: the bundle is damaged") from error
        config = read_yaml(text, str(folder / CONFIG))
        check_format(config, folder)
        bundle = build_bundle(config, load_tensors(folder / WEIGHTS), TokenizerPair.load(folder), str(folder), device)
        return replace(bundle, shortlist=load_shortlist(folder / SHORTLIST, bundle.tokenizers))


def load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path, device="cpu")
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path} is damaged or not a safetensors file: {error}") from error


def load_shortlist(path: Path, tokenizers: TokenizerPair) -> Shortlist | None:
    """Load a bundle's table of translations; None where it has none. Raises UserError if it is damaged."""
    if not path.is_file():
        return None
    found = load_tensors(path)
    shapes = {name: tuple(tensor.shape) for name, tensor in found.items() if tensor.dtype == torch.int32}
    source, target = len(tokenizers.source), len(tokenizers.target)
    candidates, frequent = shapes.get("candidates", ()), shapes.get("frequent", ())
    fits = len(found) == len(candidates) == 2 and candidates[0] == source and len(frequent) == 1
    if not fits or any(((ids < 0) | (ids >= target)).any() for ids in found.values()):
        raise UserError(f"{path} is damaged: it is no table of {source} source tokens and {target} target tokens")
    return Shortlist(**found)


def load_bundle(path: str | Path, device: torch.device | str = "cpu") -> Bundle:
    """Load a model from a bundle, a run's folder (its bundle/, else its best checkpoint) or a checkpoint file."""
    path = Path(path)
    if path.is_file():
        return load_checkpoint(path, device)
    if (path / CONFIG).is_file() and (path / WEIGHTS).is_file():
        return Bundle.load(path, device)
    run = Run(path)
    if run.bundle.is_dir():
        return Bundle.load(run.bundle, device)
    for checkpoint in (run.best, run.last):
        if checkpoint.is_file():
            return load_checkpoint(checkpoint, device)
    found = "is neither a run's folder, a bundle nor a .ckpt file" if path.exists() else "does not exist"
    if export_format(path) is not None:
        found = "is an export: it translates, but torch cannot read it"
    raise UserError(f"checkpoint={path} {found}")


def write_companions(bundle: Bundle, config: Mapping[str, Any], folder: Path, card: str) -> None:
    """Write the files beside the weights: tokenizers, config.yaml and the model card (Markdown)."""
    bundle.tokenizers.save(folder)
    unshared = json.loads(json.dumps(config))  # YAML writes shared parts as aliases, which loading refuses
    text = yaml.safe_dump(unshared, sort_keys=False, allow_unicode=True)
    (folder / CONFIG).write_text(text, encoding="utf-8")
    (folder / CARD).write_text(card, encoding="utf-8")


def load_checkpoint(path: str | Path, device: torch.device | str = "cpu") -> Bundle:
    """Load the model of a training checkpoint, with weights-only loading.

    It contains "state_dict" with the model under "model.", and "seq2seq" with "config" (the run's, resolved) and
    "tokenizers" (bytes by file name).
    """
    try:
        with zipfile.ZipFile(path):  # torch would take other files for checkpoints of its first versions
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle can raise anything
        reason = str(error).splitlines()[0] if str(error) else "it is damaged"
        raise UserError(f"{path} cannot be read as a checkpoint: {reason}") from error
    try:
        weights = _model_weights(_part(checkpoint, "state_dict"))
        own = _part(checkpoint, "seq2seq")
        run = _part(own, "config")
        tokenizers = _tokenizers(_part(own, "tokenizers"))
        data = _part(run, "data", {})
        languages = {side: data.get(f"{side}_language") for side in ("source", "target")}
        source, target = configured_languages({"languages": _part(run, "languages", {}) or languages})
        config = describe(_part(run, "model"), _part(run, "search", {}), tokenizers, source, target)
    except UserError as error:
        raise UserError(f"{path} is not a checkpoint of this package, or damaged: {error}") from error
    return build_bundle(config, weights, tokenizers, str(path), device).without_shortlist()


def _part(whole: Any, name: str, missing: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """A mapping inside a checkpoint, or `missing` where there is none."""
    part = whole.get(name) if isinstance(whole, Mapping) else None
    if part is None:
        part = missing
    if not isinstance(part, Mapping):
        raise UserError(f"{name} is missing" if part is None else f"{name} is not a mapping")
    return part


def _model_weights(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights under "model."."""
    weights = {name.removeprefix("model."): value for name, value in state.items() if str(name).startswith("model.")}
    for name, value in weights.items():
        if not isinstance(value, Tensor) or value.layout != torch.strided or value.device.type != "cpu":
            raise UserError(f"the weight {name} is not a plain tensor")
        if value.untyped_storage().nbytes() < value.nbytes:
            raise UserError(f"the weight {name} repeats its numbers instead of storing them all")
    return weights


def _tokenizers(saved: Mapping[str, Any]) -> TokenizerPair:
    for name, value in saved.items():
        if not isinstance(value, bytes):
            raise UserError(f"the tokenizer {name!r} is not a file's bytes")
    return TokenizerPair.from_state(dict(saved))


def build_bundle(
    config: dict[str, Any],
    weights: dict[str, Tensor],
    tokenizers: TokenizerPair,
    where: str,
    device: torch.device | str,
) -> Bundle:
    """Build the model, check that everything fits, and fill it."""
    check_config(config, tokenizers, where)
    with Allowance(weights.values()):
        model = build(config["model"], f"{where}: model", **tokenizers.vocabulary())
    if not isinstance(model, nn.Module):
        raise UserError(f"{where}: model._target_ did not build a model")
    fill(model, weights, where)
    return Bundle(model.to(device).eval(), tokenizers, config)


def fill(model: nn.Module, weights: dict[str, Tensor], where: str) -> None:
    """Copy `weights` into the model; each shared tensor may be given under one or several of its names."""
    own = model.state_dict()
    homes = {tensor.data_ptr(): name for name, tensor in own.items()}
    given = {homes[own[name].data_ptr()] for name in weights if name in own}
    missing = sorted(set(homes.values()) - given)
    extra = sorted(weights.keys() - own.keys())
    if missing or extra:
        named = "; ".join(
            f"{what} {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"
            for what, names in (("missing", missing), ("unknown", extra))
            if names
        )
        raise UserError(f"{where}: the weights do not belong to the configured model ({named})")
    for name, tensor in weights.items():
        if tensor.shape != own[name].shape or not tensor.is_floating_point() == own[name].is_floating_point():
            raise UserError(
                f"{where}: {name} is {tuple(tensor.shape)} {tensor.dtype}, the configured model needs "
                f"{tuple(own[name].shape)} {own[name].dtype}"
            )
        if not own[name].copy_(tensor).isfinite().all():
            raise UserError(f"{where}: {name} has values that are not finite: damaged, or training has diverged")


def unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The state dict with each tensor once, under its first name, on the CPU."""
    found: dict[int, str] = {}
    state = model.state_dict()
    for name, tensor in state.items():
        found.setdefault(tensor.data_ptr(), name)
    return {name: state[name].detach().cpu().contiguous() for name in found.values()}


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
