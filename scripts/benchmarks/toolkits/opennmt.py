"""OpenNMT-py and Eole, which share their ancestor's trainer, loss and inference engine; job["toolkit"] is which.

Training is the toolkit's own command. Its loss is asked for the target tokens of each batch, and torch for the end of
each update. Decoding is the inference engine's translation of one file, the model loaded beforehand.
"""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentParser
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.process import peak_memory_mb

MODULES = {"opennmt": "onmt", "eole": "eole"}
NEVER = 10**8
RATE, DROPOUT, SMOOTHING = 0.0005, 0.3, 0.1
UNUSED = ("ahocorasick", "fasttext", "spacy")
"""OpenNMT-py imports every transform; these packages belong to some that are not used here."""


def configuration(job: dict[str, Any]) -> dict[str, Any]:
    """The toolkit's training configuration, job["updates"] long, with a checkpoint at its end."""
    text, folder = Path(job["text"]), Path(job["folder"])
    eole, vocabulary = job["toolkit"] == "eole", str(folder / "vocabulary.txt")
    pairs = {"path_src": str(text / "train.en"), "path_tgt": str(text / "train.de"), "transforms": []}
    data = {"data": {"text": pairs}, "src_vocab": vocabulary, "tgt_vocab": vocabulary, "share_vocab": True}
    data |= {"vocab_size_multiple": 1, "seed": 1, "report_every": NEVER}
    training = {
        **{"batch_type": "tokens", "batch_size": job["batch_tokens"], "batch_size_multiple": 1},
        # The whole text is one bucket to draw batches from, read in this process.
        **{"accum_count": [1], "bucket_size": job["pairs"], "num_workers": 0, "normalization": "tokens"},
        **{"optim": "adam", "adam_beta2": 0.98, "learning_rate": RATE, "decay_method": "none", "max_grad_norm": 0},
        **{"dropout": [DROPOUT], "attention_dropout": [DROPOUT], "label_smoothing": SMOOTHING},
        **{"train_steps": job["updates"], "save_checkpoint_steps": job["updates"], "valid_steps": NEVER},
    }
    tied = {"share_embeddings": True, "share_decoder_embeddings": True}
    model = (eole_model if eole else opennmt_model)(job["model"])
    if not eole:
        own = {"save_model": str(folder / "model"), "param_init": 0.0, "param_init_glorot": True}
        return {**data, **training, **own, **model, **tied}
    training |= {"model_path": str(folder / "model"), "param_init_method": "xavier_uniform", "compute_dtype": "fp32"}
    training |= {"world_size": 0, "gpu_ranks": []}
    return {**data, "overwrite": True, "training": training, "model": {**model, **tied}}


def opennmt_model(name: str) -> dict[str, Any]:
    if name == "T":
        kind = {"encoder_type": "transformer", "decoder_type": "transformer", "enc_layers": 4, "dec_layers": 4}
        size = {"hidden_size": 128, "word_vec_size": 128, "transformer_ff": 256, "heads": 4}
        return {**kind, **size, "position_encoding": True, "add_qkvbias": True, "add_ffnbias": True}
    kind = {"encoder_type": "brnn", "decoder_type": "rnn", "rnn_type": "GRU", "enc_layers": 1, "dec_layers": 1}
    return {**kind, "hidden_size": 256, "word_vec_size": 256, "global_attention": "mlp", "bridge": True}


def eole_model(name: str) -> dict[str, Any]:
    if name == "T":
        size = {"layers": 4, "hidden_size": 128, "transformer_ff": 256, "heads": 4, "mlp_activation_fn": "relu"}
        biases = {f"add_{part}bias": True for part in ("qkv", "ffn", "final_linear_")}
        positions = {"word_vec_size": 128, "position_encoding_type": "SinusoidalInterleaved"}
        return {"architecture": "transformer", **size, **biases, "embeddings": positions}
    # Its architecture "rnn" would turn "brnn" into "rnn" and keep positions; a bridge does not fit "brnn".
    layers = {"layers": 1, "rnn_type": "GRU", "hidden_size": 256}
    return {
        **{"architecture": "custom", "hidden_size": 256},
        "embeddings": {"word_vec_size": 256, "position_encoding_type": None},
        "encoder": {"encoder_type": "brnn", **layers},
        "decoder": {"decoder_type": "rnn", "global_attention": "mlp", **layers},
    }


def run_training(job: dict[str, Any]) -> None:
    folder = Path(job["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    words = Path(job["text"], "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    lines = [f"{word}\t1\n" for word in ("<unk>", "<blank>", "<s>", "</s>", *words)]
    (folder / "vocabulary.txt").write_text("".join(lines), encoding="utf-8")
    path = folder / "training.yaml"
    path.write_text(json.dumps(configuration(job)), encoding="utf-8")  # JSON is YAML
    if job["toolkit"] == "eole":
        sys.argv = ["eole", "train", "-config", str(path)]
        import_module("eole.bin.main").main()
    else:
        sys.argv = ["onmt_train", "-config", str(path)]
        import_module("onmt.bin.train").main()


def start(job: dict[str, Any]) -> None:
    import torch

    torch.set_num_threads(job["threads"])
    os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # checkpoints hold more than weights
    for name in UNUSED:
        sys.modules.setdefault(name, ModuleType(name))


def save(job: dict[str, Any]) -> dict[str, Any]:
    start(job)
    run_training({**job, "updates": 1})
    return {}


class Finished(Exception):
    """The last update to be measured is done."""


class Meter:
    """Counts tokens and takes times of updates `warm_up` + 1 to `warm_up` + `updates`."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.warm_up, self.updates = job["warm_up"], job["updates"]
        self.began, self.startup = job["began"], 0.0
        self.done = self.tokens = self.parameters = 0
        self.start = self.seconds = self.peak = 0.0

    def update(self, optimizer: Any) -> None:
        self.done += 1
        if self.done == 1:
            self.startup = time.time() - self.began
            parameters = [one for group in optimizer.param_groups for one in group["params"]]
            self.parameters = sum(one.numel() for one in parameters)
        if self.done == self.warm_up:
            self.start, self.tokens = time.perf_counter(), 0
        if self.done == self.warm_up + self.updates:
            self.seconds, self.peak = time.perf_counter() - self.start, peak_memory_mb()
            raise Finished


def train(job: dict[str, Any]) -> dict[str, Any]:
    start(job)
    from torch.optim.optimizer import register_optimizer_step_post_hook

    meter = Meter(job)
    loss = import_module(f"{MODULES[job['toolkit']]}.utils.loss").LossCompute
    forward = loss.forward

    def counted(self: Any, batch: Any, *rest: Any, **named: Any) -> Any:
        meter.tokens += int(batch["tgt"][:, 1:].ne(self.padding_idx).sum())
        return forward(self, batch, *rest, **named)

    loss.forward = counted
    register_optimizer_step_post_hook(lambda optimizer, *_: meter.update(optimizer))
    with suppress(Finished):
        run_training({**job, "updates": job["warm_up"] + job["updates"] + 1})
    if not meter.seconds:
        raise RuntimeError(f"training ended after {meter.done} updates")
    return {
        "target_tokens_per_second": meter.tokens / meter.seconds,
        "target_tokens_per_update": meter.tokens / meter.updates,
        "seconds": meter.seconds,
        "startup_seconds": meter.startup,
        "peak_memory_mb": meter.peak,
        "parameters": meter.parameters,
    }


def decode(job: dict[str, Any]) -> dict[str, Any]:
    start(job)
    output = Path(job["folder"], "output.txt")
    lengths = {"min_length": job["length"], "max_length": job["length"], "max_length_ratio": 0}
    settings = {"src": job["input"], "output": str(output), "batch_size": job["batch"], "beam_size": job["beams"]}
    engine, model = (eole_engine if job["toolkit"] == "eole" else opennmt_engine)(job, {**settings, **lengths})
    began = time.perf_counter()
    engine.infer_file()
    seconds = time.perf_counter() - began
    outputs = [len(line.split(" ")) for line in output.read_text(encoding="utf-8").split("\n")[:-1]]
    if set(outputs) != {job["length"]}:
        raise RuntimeError(f"outputs have {min(outputs)} to {max(outputs)} tokens, not {job['length']}")
    return {
        "sentences_per_second": len(outputs) / seconds,
        "tokens_per_second": sum(outputs) / seconds,
        "seconds": seconds,
        "peak_memory_mb": peak_memory_mb(),
        "parameters": sum(one.numel() for one in model.parameters()),
    }


def arguments(settings: dict[str, Any]) -> list[str]:
    return [text for name, value in settings.items() for text in (f"--{name}", str(value))]


def opennmt_engine(job: dict[str, Any], settings: dict[str, Any]) -> tuple[Any, Any]:
    from onmt.inference_engine import InferenceEnginePY
    from onmt.opts import translate_opts
    from onmt.utils.parse import ArgumentParser as Options

    parser = Options()
    translate_opts(parser)
    model = str(Path(job["folder"], "model_step_1.pt"))
    options = parser.parse_args(arguments({"model": model, **settings, "gpu": -1}))
    Options.validate_translate_opts(options)
    Options._get_all_transform_translate(options)
    Options._validate_transforms_opts(options)
    Options.validate_translate_opts_dynamic(options)
    engine = InferenceEnginePY(options)
    return engine, engine.translator.model


def eole_engine(job: dict[str, Any], settings: dict[str, Any]) -> tuple[Any, Any]:
    import_module("eole.bin")  # registers the transforms' options
    from eole.bin.run.predict import Predict
    from eole.inference_engine import InferenceEnginePY

    parser = ArgumentParser()
    Predict.add_args(parser)
    place = {"model_path": str(Path(job["folder"], "model")), "world_size": 1}
    engine = InferenceEnginePY(Predict.build_config(parser.parse_args(arguments({**place, **settings}))))
    return engine, engine.predictor.model
