"""Where the options of config groups are: in conf/, and in folders of the user's own (`--config-dir`)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from seq2seq.errors import UserError

SEARCH_PATH = "hydra.searchpath"

MISPLACED = (
    "the experiment's settings landed under 'experiment', where nothing reads them\n"
    "Let the first line of its file be, with nothing before it, not even a byte order mark: # @package _global_"
)


def config_dir() -> Path:
    """The folder of YAML files: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "train.yaml").is_file():
            return folder
    raise UserError(f"the configuration files are missing beside {package}\nInstall the package again.")


def root_files(command: str) -> list[dict[str, Any]]:
    """A command's own file, and those that its defaults list includes, such as train in compare.yaml."""
    content = yaml.safe_load((config_dir() / f"{command}.yaml").read_text(encoding="utf-8"))
    included = [entry for entry in content["defaults"] if isinstance(entry, str) and entry != "_self_"]
    return [content, *(file for name in included for file in root_files(name))]


def root_groups(command: str) -> set[str]:
    """The config groups that the defaults lists of `root_files` choose from."""
    entries = (entry for content in root_files(command) for entry in content["defaults"] if isinstance(entry, dict))
    return {name for entry in entries for name in entry if not name.startswith("override ")}


def groups(overrides: Iterable[str] = ()) -> dict[str, list[str]]:
    """Every config group with its options, those of a search path in `overrides` too."""
    found: dict[str, set[str]] = {}
    for root in (config_dir(), *_own_folders(overrides)):
        for file in _options(root):
            found.setdefault(file.parent.as_posix(), set()).add(file.stem)
    return {group: sorted(options) for group, options in sorted(found.items())}


def key_of(override: str) -> str:
    """model.width of +model.width=3."""
    return override.lstrip("+~").split("=")[0]


def option_file(group: str, option: str, overrides: Iterable[str] = ()) -> Path | None:
    """The YAML file of an option, or None if there is no such option."""
    files = (root / group / f"{option}.yaml" for root in (config_dir(), *_own_folders(overrides)))
    return next((file for file in files if file.is_file()), None)


def _options(folder: Path) -> list[Path]:
    """The options in a folder like conf/, relative to it: GROUP/NAME.yaml for any group that conf/ has."""
    tops = [path.name for path in config_dir().iterdir() if path.is_dir()]
    return sorted(file.relative_to(folder) for top in tops for file in (folder / top).rglob("*.yaml"))


def with_search_path(arguments: list[str]) -> list[str]:
    """`--config-dir DIR`, anywhere in `arguments`, as the override of Hydra's search path that it stands for.

    Raises:
        UserError: DIR is missing, or holds no option, or one that Hydra would pass over because its name is taken.
    """
    named, others = [], []
    rest = iter(arguments)
    for text in rest:
        if text in ("--config-dir", "-cd"):
            named.append(next(rest, ""))
        elif text.startswith("--config-dir="):
            named.append(text.partition("=")[2])
        else:
            others.append(text)
    if not named:
        return arguments
    if "" in named:
        raise UserError("--config-dir needs a folder, such as one with experiment/NAME.yaml in it")
    if any(map(_sets_search_path, others)):
        raise UserError("--config-dir and hydra.searchpath= are two ways to say the same\nGive one of them.")
    ours = [*_options(config_dir()), *(Path(path.name) for path in config_dir().glob("*.yaml"))]
    for name in named:
        if not Path(name).is_dir():
            raise UserError(f"--config-dir {name}: there is no such folder")
        if not _options(Path(name)):
            raise UserError(f"--config-dir {name}: there is no GROUP/NAME.yaml, such as experiment/mine.yaml")
        if taken := [str(file) for file in ours if (Path(name) / file).is_file()]:
            raise UserError(
                f"--config-dir {name}: {', '.join(taken)}: so is one of ours named, and it would be taken\n"
                "Give yours another name."
            )
    folders = ", ".join(quoted(f"file://{Path(name).resolve()}") for name in named)
    return [f"{SEARCH_PATH}=[{folders}]", *others]


def search_path() -> list[str]:
    """The override of Hydra's search path in the command that is running, or nothing."""
    from hydra.core.hydra_config import HydraConfig

    return list(filter(_sets_search_path, HydraConfig.get().overrides.hydra))


def readable(argument: str) -> str:
    """The argument, its value in quotes if Hydra cannot read it without and it is plainly one text: neither a list, nor
    several values."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, equals, value = argument.partition("=")
    if not equals or not key or value[:1] in tuple("[{('\"") or "," in value or "${" in value:
        return argument
    parser = OverridesParser.create()
    with suppress(HydraException):
        parser.parse_override(argument)
        return argument
    in_quotes = f"{key}={quoted(value)}"
    with suppress(HydraException):
        parser.parse_override(in_quotes)
        return in_quotes
    return argument


def quoted(text: str) -> str:
    """The text as a value on a command line of Hydra's, whatever characters are in it."""
    from hydra.core.override_parser.types import Quote, QuotedString

    return QuotedString(text, Quote.single).with_quotes()


def own_files(overrides: Iterable[str]) -> list[Path]:
    """The user's own options, in folders of a search path in `overrides`."""
    return [root / option for root in _own_folders(overrides) for option in _options(root)]


def _own_folders(overrides: Iterable[str]) -> list[Path]:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    values = [OverridesParser.create().parse_override(text).value() for text in overrides if _sets_search_path(text)]
    places = [str(place) for value in values if isinstance(value, list) for place in value]
    return [Path(place.removeprefix("file://")) for place in places if not place.startswith("pkg://")]


def _sets_search_path(override: str) -> bool:
    return override.lstrip("+").startswith(f"{SEARCH_PATH}=")
