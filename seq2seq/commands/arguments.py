"""Parsing a command line: Hydra's options and KEY=VALUE overrides, in any order."""

from __future__ import annotations

from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from seq2seq.errors import UserError


@dataclass(frozen=True)
class CommandLine:
    """A parsed command line.

    options: as Hydra takes them, before the overrides. folders: the user's own options, by --config-dir.
    """

    options: list[str]
    overrides: list[str]
    folders: list[Path]


def parse(command: str, arguments: Sequence[str]) -> CommandLine:
    """Split a command line.

    Raises:
        UserError: an unknown option, or one without its value.
    """
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("-c", "--cfg", choices=("job", "hydra", "all"))
    parser.add_argument("-p", "--package")
    parser.add_argument("-i", "--info")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("-cd", "--config-dir", action="append", default=[])
    parser.add_argument("overrides", nargs="*")
    try:
        found, unknown = parser.parse_known_intermixed_args(arguments)
    except ArgumentError as error:
        raise UserError(f"{error}\nSee seq2seq {command} --help") from error
    if unknown:
        setting = unknown[0].lstrip("-")
        setting += "" if "=" in setting else "=VALUE"
        raise UserError(
            f"there is no option {unknown[0]}; a setting is written {setting}\nSee seq2seq {command} --help"
        )
    if len(found.config_dir) > 1:
        raise UserError("--config-dir is given twice\nGive one folder, and others by hydra.searchpath=[file://DIR].")
    folders = [Path(name) for name in found.config_dir]
    return CommandLine(_options(found), [readable(text) for text in found.overrides], folders)


def _options(found: Namespace) -> list[str]:
    flags = [f"--{name}" for name in ("multirun", "resolve") if getattr(found, name)]
    with_values = {"cfg": found.cfg, "package": found.package, "info": found.info}
    options = [text for name, value in with_values.items() if value is not None for text in (f"--{name}", value)]
    return [*flags, *options, *(text for folder in found.config_dir for text in ("--config-dir", folder))]


def readable(argument: str) -> str:
    """Quote the value of an override that Hydra cannot read, if it is plainly one text: no list, not several values."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, equals, value = argument.partition("=")
    if not equals or not key or value[:1] in tuple("[{('\"") or "," in value or "${" in value:
        return argument
    parser = OverridesParser.create()
    in_quotes = f"{key}={quoted(value)}"
    for text in (argument, in_quotes):
        with suppress(HydraException):
            parser.parse_override(text)
            return text
    return argument


def quoted(text: str) -> str:
    """Quote any text as a value on a Hydra command line."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(text, Quote.single).with_quotes()
