"""`seq2seq COMMAND [overrides]`: run a command, and report errors in one or two lines.

Exit status: 0 success; 1 internal error (with a traceback); 2 an error that the user can correct; 75 stopped by SIGTERM
after saving (the same command resumes); 130 interrupted by Ctrl-C.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from seq2seq import __version__
from seq2seq.errors import OUT_OF_MEMORY, UserError, out_of_memory

INTERRUPTED = 130

COMMANDS = {
    "train": "train one model (or several: -m model=rnn,bahdanau) and score it on its test sets",
    "compare": "train and score several models on the same data and write a report",
    "report": "compare finished runs, or hypothesis files of external systems, in HTML, Markdown and JSON",
    "evaluate": "score a checkpoint, or a file of translations, with sacreBLEU",
    "translate": "translate lines from standard input or a file",
    "serve": "an HTTP service, and a page that shows the models' attention",
    "score": "log-probabilities that a model assigns to translations",
    "average": "average the weights of several checkpoints into one bundle",
    "export": "write a bundle, or a model for CTranslate2 or ONNX, from a checkpoint",
}

USAGE = """usage: seq2seq COMMAND [key=value ...]

{commands}

  seq2seq COMMAND --help    settings of a command, with examples
  seq2seq --version

Start here (built-in data, no network):
  seq2seq train model=bahdanau trainer.max_time=00:00:03:00
  echo "the man sees the dog ." | seq2seq translate checkpoint=runs/bahdanau-grammar-seed1
"""


def main(arguments: list[str] | None = None) -> None:
    """Run a command line and exit with its status."""
    guarded(_prepare)
    status = run(sys.argv[1:] if arguments is None else arguments)
    sys.exit(guarded(_flush) or status)


def _prepare() -> None:
    from seq2seq.commands.console import prepare_streams

    prepare_streams()


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        width = max(map(len, COMMANDS))
        commands = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
        return guarded(say, USAGE.format(commands=commands)) or (0 if arguments else 2)
    if arguments[0] == "--version":
        return guarded(say, __version__)
    command, rest = arguments[0], arguments[1:]
    if command not in COMMANDS:
        from seq2seq.pipeline.suggestions import nearest

        return fail(f"there is no command {command!r}{nearest(command, COMMANDS)}\nCommands: {', '.join(COMMANDS)}")
    return guarded(_help if {"-h", "--help"} & {*rest} else _launch, command, rest)


def _help(command: str, arguments: list[str]) -> None:
    from seq2seq.commands.help import help_text

    say(help_text(command, arguments))


def _launch(command: str, arguments: list[str]) -> int:
    from seq2seq.commands.launch import launch

    return launch(command, arguments)


def guarded(function: Callable[..., int | None], *arguments: Any) -> int:
    """Call `function` and return the exit status."""
    try:
        return function(*arguments) or 0
    except UserError as error:
        return fail(str(error), error.status)
    except KeyboardInterrupt:
        resumes = arguments and arguments[0] in ("train", "compare")
        return fail("interrupted" + "; the same command resumes from the last checkpoint" * bool(resumes), INTERRUPTED)
    except BrokenPipeError:  # the reader has gone
        _drop_output()
        return 0
    except OSError as error:
        if error.strerror is None:
            raise
        if error.filename == "standard output":
            _drop_output()
        return fail(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        return fail(OUT_OF_MEMORY)


def _drop_output() -> None:
    """Discard standard output, so that the interpreter's final flush does not report the error again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str) -> None:
    print(text, flush=True)


def fail(message: str, status: int = 2) -> int:
    print(f"error: {message}", file=sys.stderr)
    return status
