"""`seq2seq serve`: the HTTP service and its page."""

from __future__ import annotations

import sys

from omegaconf import DictConfig

from seq2seq.commands.configuration import build_node, checkpoints, chosen_search
from seq2seq.errors import UserError


def main(config: DictConfig) -> int:
    names = checkpoints(config.checkpoints, "checkpoints")
    from seq2seq.inference.loading import use_threads
    from seq2seq.inference.text_windows import Batching
    from seq2seq.serving.served import load_models

    try:
        from seq2seq.serving.app import create_app
        from seq2seq.serving.server import address, listen, serve
    except ModuleNotFoundError as error:
        raise UserError(f"serving needs {error.name}\nInstall it: pip install 'seq2seq[serve]'") from error
    use_threads(config.threads)
    limits = build_node(config.limits, "limits")
    texts = Batching(config.max_tokens, max_source_length=config.max_source_length, long_lines=config.long_lines)
    listener = listen(config.host, config.port)
    models = load_models(names, config.device, chosen_search(config.search), texts)
    app = create_app(models, limits, build_node(config.batching, "batching"))
    print(
        f"{', '.join(model.name for model in models)}: {address(listener)}  (Ctrl-C stops)", file=sys.stderr, flush=True
    )
    serve(app, listener, limits)
    print("stopped; everything accepted was answered", file=sys.stderr)
    return 0
