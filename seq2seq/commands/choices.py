"""The configuration files: commands, groups and options of conf/, and a user's own options (`--config-dir`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig

from seq2seq.errors import UserError

WHOLE = ("experiment", "recipe")
"""Groups whose files change the whole configuration."""


def misplaced(group: str) -> str:
    """Return the error message for an experiment or a recipe without `# @package _global_`."""
    return (
        f"the {group}'s settings landed under '{group}', where nothing reads them\n"
        "Let the first line of its file be, with nothing before it, not even a byte order mark: # @package _global_"
    )


def config_dir() -> Path:
    """Find the folder of the YAML files: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "train.yaml").is_file():
            return folder
    raise UserError(f"the configuration files are missing beside {package}\nReinstall the package.")


def root_files(command: str) -> list[dict[str, Any]]:
    """Load a command's own file, and train.yaml if its defaults list includes that."""
    content = yaml.safe_load((config_dir() / f"{command}.yaml").read_text(encoding="utf-8"))
    included = [entry for entry in content["defaults"] if entry == "train"]
    return [content, *(file for name in included for file in root_files(name))]


def root_groups(command: str) -> set[str]:
    """Name the config groups of a command."""
    entries = (entry for content in root_files(command) for entry in content["defaults"] if isinstance(entry, dict))
    return {name for entry in entries for name in entry if not name.startswith("override ")}


def groups(folders: Iterable[Path] = ()) -> dict[str, list[str]]:
    """List all config groups with their options, including those in the user's own folders."""
    found: dict[str, set[str]] = {}
    for root in (config_dir(), *folders):
        for file in _options(root):
            found.setdefault(file.parent.as_posix(), set()).add(file.stem)
    return {group: sorted(options) for group, options in sorted(found.items())}


def key_of(override: str) -> str:
    """Return the key of an override: model.width of +model.width=3."""
    return override.lstrip("+~").split("=")[0]


def option_file(group: str, option: str, folders: Iterable[Path] = ()) -> Path | None:
    """Find the YAML file of an option; None if there is no such option."""
    files = (root / group / f"{option}.yaml" for root in (config_dir(), *folders))
    return next((file for file in files if file.is_file()), None)


def _options(folder: Path) -> list[Path]:
    """List the options in a folder with the layout of conf/, as relative paths GROUP/NAME.yaml."""
    tops = [path.name for path in config_dir().iterdir() if path.is_dir()]
    return sorted(file.relative_to(folder) for top in tops for file in (folder / top).rglob("*.yaml"))


def check_folder(folder: Path) -> None:
    """Refuse a folder of --config-dir that cannot have an effect.

    Raises:
        UserError: it is missing, has no option, or has one that Hydra would ignore for ours of the same name.
    """
    if not folder.is_dir():
        raise UserError(f"--config-dir {folder} does not exist")
    if not _options(folder):
        raise UserError(f"--config-dir {folder} has no GROUP/NAME.yaml, such as experiment/mine.yaml")
    ours = [*_options(config_dir()), *(Path(path.name) for path in config_dir().glob("*.yaml"))]
    if taken := [str(file) for file in ours if (folder / file).is_file()]:
        raise UserError(
            f"--config-dir {folder}: {', '.join(taken)} would be ignored for the file of that name in conf/\n"
            "Rename yours."
        )


def own_files(folders: Iterable[Path]) -> list[Path]:
    """List the user's own options, in the folders of --config-dir."""
    return [root / option for root in folders for option in _options(root)]


def own_folders() -> list[Path]:
    """List the folders of --config-dir of the running command."""
    from hydra.core.hydra_config import HydraConfig

    sources = HydraConfig.get().runtime.config_sources
    return [Path(source.path) for source in sources if source.provider == "command-line"]


def search_path() -> list[str]:
    """Return the options that a repetition of the running command needs, besides its overrides."""
    return [text for folder in own_folders() for text in ("--config-dir", str(folder))]


def compose(command: str, overrides: Sequence[str] = (), with_hydra: bool = False) -> DictConfig:
    """Compose a configuration by Hydra, which may be running already. Raises Hydra's errors."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.initialize import get_gh_backup, restore_gh_from_backup

    outer = get_gh_backup()
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(config_dir()), version_base="1.3"):
            return compose(command, list(overrides), return_hydra_config=with_hydra)
    finally:
        restore_gh_from_backup(outer)


def flat_keys(node: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all keys below `node`."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield f"{prefix}{name}"
            yield from flat_keys(value, f"{prefix}{name}.")
