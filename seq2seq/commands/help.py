"""`seq2seq COMMAND --help`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from seq2seq.commands.arguments import parse
from seq2seq.commands.choices import config_dir, groups, option_file, root_groups


def help_text(command: str, arguments: Sequence[str] = ()) -> str:
    """Return the command's YAML file and the choices of its groups, or the files of the options in `arguments`."""
    line = parse(command, [text for text in arguments if text not in ("-h", "--help")])
    named = [text.split("=", 1) for text in line.overrides if "=" in text]
    files = {
        f"{group}={option}": option_file(group, option, line.folders) for group, option in named if group in groups()
    }
    if texts := [f"# {name}\n{_option_text(file)}" for name, file in files.items() if file]:
        return "\n".join(texts)
    keys = (config_dir() / f"{command}.yaml").read_text(encoding="utf-8").rstrip()
    lines = [f"usage: seq2seq {command} [key=value ...] [-m] [--cfg job] [--config-dir DIR]", "", keys, "", "Choices:"]
    tops = root_groups(command)
    for group, options in groups().items():
        if group.split("/")[0] in tops and not group.endswith("/common"):
            lines.append(f"  {group}: {', '.join(options)}")
    if not tops:
        return "\n".join(lines[:-2])
    lines += ["", f"The keys of a choice: seq2seq {command} GROUP=OPTION --help"]
    return "\n".join(lines)


def _option_text(file: Path) -> str:
    """Return the text of an option's file, followed by the files that it includes."""
    text = file.read_text(encoding="utf-8")
    content: Any = OmegaConf.to_container(OmegaConf.create(text))
    included = [entry for entry in content.get("defaults", []) if isinstance(entry, str) and entry != "_self_"]
    there = (file.parent / f"{entry.removesuffix('@_here_')}.yaml" for entry in included)
    return "\n".join([text, *map(_option_text, filter(Path.is_file, there))])
