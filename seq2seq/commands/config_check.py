"""Checks of a composed configuration that need no data: unknown keys, wrong types, foreign targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from omegaconf import DictConfig, OmegaConf

from seq2seq.commands.choices import WHOLE, misplaced, root_files, root_groups
from seq2seq.commands.values import put
from seq2seq.errors import UserError
from seq2seq.pipeline.build import check_target, describe, fits, with_whole_numbers
from seq2seq.pipeline.suggestions import nearest

TYPES: dict[str, Any] = {
    **dict.fromkeys(("checkpoint", "checkpoints", "runs"), str | list[str]),
    **dict.fromkeys(("export.checkpoint", "output", "host", "split", "device", "tokenize"), str),
    **dict.fromkeys(("translate.format", "score.format"), Literal["text", "jsonl"]),
    "export.format": Literal["bundle", "ctranslate2", "onnx"],
    "engine": Literal["auto", "torch", "ctranslate2", "onnx"],
    "long_lines": Literal["split", "truncate"],
    **dict.fromkeys(("run_dir", "baseline", "input", "quantization", "sample"), str | None),
    **dict.fromkeys(("evaluate.tokenize", "comet", "report.split"), str | None),
    **dict.fromkeys(("train.checkpoint", "compare.checkpoint", "evaluate.checkpoint"), str | None),
    **dict.fromkeys(("evaluate.output", "translate.output", "report.output"), str | None),
    **dict.fromkeys(("hypotheses", "evaluate.references", "evaluate.sources"), str | None),
    **dict.fromkeys(("sources", "translations"), str),
    **dict.fromkeys(("dry_run", "lowercase", "resume", "join"), bool),
    **dict.fromkeys(("test_splits", "splits"), list[str] | None),
    **dict.fromkeys(("models", "experiments"), list[str]),
    **dict.fromkeys(("threads", "n_best"), int | None),
    "report.hypotheses": dict[str, str] | None,
    "systems": dict[str, list[str]] | None,
    "evaluate.lowercase": bool | None,
    "beam_sizes": list[int],
    "seeds": list[int],
    "seed": int,
    "label_smoothing": float,
    "r_drop": float,
}
"""Types of the plain keys of the root files; `command.key` takes precedence over `key`."""


def check(config: DictConfig, command: str) -> None:
    """Refuse what cannot work, and turn whole floats such as 1e5 into ints where ints are needed.

    Raises:
        UserError: a key that nothing reads, a value of the wrong type, or a `_target_` outside the trusted packages.
    """
    allowed = {str(key) for content in root_files(command) for key in content} - {"defaults", "hydra"}
    allowed |= root_groups(command)
    for group in WHOLE:
        if group in config:
            raise UserError(misplaced(group))
    for key in config:
        if key not in {*allowed, "hydra"}:
            raise UserError(f"unknown key {str(key)!r}{nearest(str(key), allowed)}\nSee seq2seq {command} --help")
    if missing := sorted(allowed - {*WHOLE} - {str(key) for key in config}):
        raise UserError(f"{missing[0]}= is needed and was removed\nSee seq2seq {command} --help")
    if command in ("train", "compare") and "_target_" not in config.search:
        raise UserError(f"search=checkpoint is not for {command}\nChoose search=beam, greedy, sampling or diverse.")
    plain = OmegaConf.to_container(without_hydra(config), resolve=True)
    assert isinstance(plain, dict)
    for key, value in plain.items():
        hint = TYPES.get(f"{command}.{key!s}", TYPES.get(str(key), object))
        found = with_whole_numbers(value, hint)
        if not fits(found, hint) and get_origin(hint) is Literal:
            names = get_args(hint)
            known = f"choose {', '.join(names[:-1])} or {names[-1]}"
            raise UserError(f"{key!s}={value!r} is unknown{nearest(str(value), names)}; {known}")
        if not fits(found, hint):
            way_out = f"\nWrite a list as {key!s}=[{value}]" if fits([value], hint) else ""
            raise UserError(f"{key!s}={value!r} has the wrong type: {describe(hint)} is needed{way_out}")
        if found is not value:
            put(config, str(key), found)
    for path, node in targets(plain):
        for key, value in check_target(path, node)[1].items():
            put(config, f"{path}.{key}", value)


def without_hydra(config: DictConfig) -> DictConfig:
    """Copy the configuration without Hydra's own node."""
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def targets(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every mapping that builds something below `node`, with its dotted path."""
    if isinstance(node, dict):
        if node.get("_target_") is not None:
            yield path, node
        for name, value in node.items():
            yield from targets(value, f"{path}.{name}" if path else str(name))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from targets(value, f"{path}[{number}]")
