"""Time and memory of one layer against the length n of its sequence, with fitted exponents, beside the textbook table.

Forward and backward of our own layers on one sequence (--width features, float32, one thread): recurrent
(RecurrentEncoder, a GRU in both directions), convolutional (GatedConvolution, kernel 3), full self-attention
(MultiHeadAttention, 4 heads) once with its n x n weights made, as the equation says, and once by the fused kernel that
never holds them, and self-attention restricted to --radius positions on either side.

Time is processor time (on a machine that does nothing else the same as time on the clock), the least of several
repetitions: what the work takes when nothing disturbs it. Memory is what the forward
pass keeps for the backward pass (saved_tensors_hooks, each storage once, parameters left out) and the output; so it is
exact and the same on every machine, and leaves out what lives only within one operation.

An exponent is the slope of a straight line through log(time or memory) against log(n), least squares, over lengths
from --fit-from up: below that the parts that are linear in n (projections, feed-forward products) hide the rest.
--output is a folder; complexity.json and complexity.svg are written there.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.process import fresh
from benchmarks.record import markdown

if TYPE_CHECKING:
    import argparse

    import torch

OUTPUT = Path("runs/benchmark/complexity")
HEADS, KERNEL = 4, 3

TEXTBOOK = {
    "recurrent": ("O(n d^2)", "O(n)", "O(n)"),
    "convolution": ("O(k n d^2)", "O(1)", "O(n / k)"),
    "self-attention": ("O(n^2 d)", "O(1)", "O(1)"),
    "self-attention, fused": ("O(n^2 d)", "O(1)", "O(1)"),
    "restricted self-attention": ("O(r n d)", "O(1)", "O(n / r)"),
}
"""Cost per layer, sequential steps, longest path between two positions: Vaswani et al. 2017, table 1. n positions of
width d, kernel k, radius r. The fused kernel does the same work; what changes is memory, O(n d) instead of O(n^2)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 256, 512, 1024, 2048, 4096], metavar="N")
    parser.add_argument("--fit-from", type=int, default=512, metavar="N", help="shortest length of the fits")
    parser.add_argument("--width", type=int, default=64, metavar="D")
    parser.add_argument("--radius", type=int, default=16, metavar="R", help="of restricted self-attention")
    parser.add_argument("--repetitions", type=int, default=7, metavar="N")
    parser.add_argument("--layers", nargs="+", choices=list(TEXTBOOK), default=list(TEXTBOOK), metavar="NAME")


def run(options: argparse.Namespace) -> dict[str, Any]:
    from benchmarks.drawing import draw

    sizes = {"width": options.width, "heads": HEADS, "kernel": KERNEL, "radius": options.radius}
    settings = {
        **sizes,
        "lengths": sorted(options.lengths),
        "repetitions": options.repetitions,
    }
    os.environ["OMP_NUM_THREADS"] = "1"
    layers = {name: fresh("complexity.measure", {**settings, "layer": name}) for name in options.layers}
    range_of_fit = [n for n in settings["lengths"] if n >= options.fit_from]
    for name, layer in layers.items():
        for quantity in ("seconds", "bytes"):
            layer[f"{quantity}_exponent"] = exponent(settings["lengths"], layer[quantity], options.fit_from)
        layer["textbook"] = dict(zip(("cost", "sequential_steps", "longest_path"), TEXTBOOK[name], strict=True))
    draw(options.output / "complexity.svg", settings, layers, range_of_fit)
    return {"settings": settings, "fit": range_of_fit, "layers": layers, "table": table(settings, layers, range_of_fit)}


def table(settings: dict[str, Any], layers: dict[str, Any], fit: list[int]) -> str:
    head = ("layer", "cost", "steps", "path", "time ~ n^", "memory ~ n^")
    head += tuple(f"ms n={n}" for n in settings["lengths"]) + tuple(f"MB n={n}" for n in settings["lengths"])
    rows = [
        (
            name,
            *layer["textbook"].values(),
            *(layer[f"{quantity}_exponent"] for quantity in ("seconds", "bytes")),
            *(seconds * 1e3 for seconds in layer["seconds"]),
            *(size / 2**20 for size in layer["bytes"]),
        )
        for name, layer in layers.items()
    ]
    fitted = f"\nExponents are fitted over n = {fit[0]} .. {fit[-1]}." if len(fit) > 1 else ""
    return markdown(head, rows) + fitted


def exponent(lengths: Sequence[int], values: Sequence[float], first: int) -> float | None:
    """Slope of log(value) against log(length) over lengths from `first` up; None for fewer than two of them."""
    points = [(math.log(n), math.log(v)) for n, v in zip(lengths, values, strict=True) if n >= first]
    if len(points) < 2:
        return None
    x_mean, y_mean = (sum(axis) / len(points) for axis in zip(*points, strict=True))
    return sum((x - x_mean) * (y - y_mean) for x, y in points) / sum((x - x_mean) ** 2 for x, _ in points)


def measure(settings: dict[str, Any]) -> dict[str, Any]:
    """Seconds and bytes of one layer at each length."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    layer, forward = build(settings)
    seconds, sizes = [], []
    for length in settings["lengths"]:
        inputs = torch.randn(1, length, settings["width"], requires_grad=True)
        gradient = torch.randn(1, length, settings["width"])
        times = []
        for _ in range(settings["repetitions"] + 1):
            layer.zero_grad()
            inputs.grad = None
            began = time.process_time()
            forward(inputs).backward(gradient)
            times.append(time.process_time() - began)
        seconds.append(min(times[1:]))
        sizes.append(kept_bytes(layer, forward, inputs))
    return {"seconds": seconds, "bytes": sizes, "parameters": sum(p.numel() for p in layer.parameters())}


def build(settings: dict[str, Any]) -> tuple[torch.nn.Module, Any]:
    """A layer by its name in TEXTBOOK, and its forward pass over inputs (1, n, D)."""
    import torch

    from seq2seq.attention.multihead import MultiHeadAttention
    from seq2seq.layers.convolution import GatedConvolution
    from seq2seq.layers.recurrent import RecurrentEncoder

    name, width, heads = settings["layer"], settings["width"], settings["heads"]
    if name == "recurrent":
        encoder = RecurrentEncoder("gru", width, width, layers=1, bidirectional=True)
        return encoder, lambda inputs: encoder(inputs, torch.ones(inputs.shape[:2], dtype=torch.bool))[0]
    if name == "convolution":
        convolution = GatedConvolution(width, settings["kernel"], causal=False)
        return convolution, convolution
    window = settings["radius"] if name == "restricted self-attention" else None
    attention = MultiHeadAttention(width, heads, window=window)
    weights = name == "self-attention"
    return attention, lambda inputs: attention(inputs, need_weights=weights)[0]


def kept_bytes(layer: torch.nn.Module, forward: Any, inputs: torch.Tensor) -> int:
    """Bytes of the output and of all that forward keeps for backward, each storage once, without parameters."""
    import torch

    parameters = {parameter.untyped_storage().data_ptr() for parameter in layer.parameters()}
    kept: dict[int, Any] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = forward(inputs)
        keep(output)
    return sum(storage.nbytes() for storage in kept.values())
