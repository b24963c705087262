"""The picture of `benchmark.py complexity`: time and memory against length, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

STYLES = {
    "recurrent": ("#c8440a", "s", "-"),
    "convolution": ("#866104", "D", (0, (9, 2, 2, 2))),
    "self-attention": ("#0067b0", "o", "-"),
    "self-attention, fused": ("#3f8fd0", "v", (0, (5, 2))),
    "restricted self-attention": ("#007a58", "^", (0, (2, 1.5))),
}
INK, GRID = "#1b1f24", "#e3e7eb"


def draw(path: Path, settings: dict[str, Any], layers: dict[str, Any], fit: Sequence[int]) -> None:
    """Write the picture as SVG, light, with each line's name and fitted exponent at its end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullFormatter

    from seq2seq.files import atomic_write

    lengths = settings["lengths"]
    style = {
        "svg.fonttype": "none",
        "svg.hashsalt": "complexity",
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
        "font.size": 11,
        "text.color": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    panels = (
        ("seconds", "processor time, forward and backward", lambda value, _: f"{value * 1e3:g} ms"),
        ("bytes", "memory kept for the backward pass", lambda value, _: f"{value:g} MB"),
    )
    with matplotlib.rc_context(style):
        figure, axes = pyplot.subplots(1, 2, figsize=(13, 5.2), facecolor="white", layout="constrained")
        for axis, (quantity, title, label) in zip(axes, panels, strict=True):
            scale = 2**20 if quantity == "bytes" else 1
            ends = {}
            for name, layer in layers.items():
                color, marker, dash = STYLES[name]
                values = [value / scale for value in layer[quantity]]
                axis.plot(lengths, values, color=color, marker=marker, linestyle=dash, linewidth=2, markersize=6)
                slope = layer[f"{quantity}_exponent"]
                ends[name] = (values[-1], f"{name}" + (f"  n^{slope:.2f}" if slope is not None else ""))
            axis.set(xscale="log", yscale="log", title=title, xlabel="length n of the sequence")
            axis.set_xticks(lengths, [str(n) for n in lengths])
            axis.xaxis.set_minor_formatter(NullFormatter())
            axis.yaxis.set_major_formatter(FuncFormatter(label))
            axis.grid(True, which="major", color=GRID)
            axis.set_axisbelow(True)
            axis.spines[["top", "right"]].set_visible(False)
            _names(axis, ends, lengths[-1])
        fitted = f"; exponents fitted over n = {fit[0]} to {fit[-1]}" if len(fit) > 1 else ""
        figure.supxlabel(
            f"one layer, width {settings['width']}, batch 1, {settings['heads']} heads, kernel {settings['kernel']}, "
            f"radius {settings['radius']}, one CPU thread{fitted}",
            fontsize=10,
        )
        with atomic_write(path) as stream:
            figure.savefig(stream, format="svg", metadata={"Date": None})
        pyplot.close(figure)


def _names(axis: Any, ends: dict[str, tuple[float, str]], right: int) -> None:
    """Each line's name beside its end, moved apart where they would meet, tied to the end by a thin line."""
    from seq2seq.report.draw import spread

    low, high = axis.get_ylim()
    to_share = axis.transLimits
    order = sorted(ends, key=lambda name: ends[name][0])
    places = [float(to_share.transform(axis.transScale.transform((right, ends[name][0])))[1]) for name in order]
    for name, place in zip(order, spread(places, 0.055, 0.0, 1.0), strict=True):
        value, text = ends[name]
        axis.annotate(
            text,
            xy=(right, value),
            xytext=(1.04, place),
            textcoords="axes fraction",
            color=STYLES[name][0],
            weight="bold",
            va="center",
            arrowprops={"arrowstyle": "-", "color": STYLES[name][0], "linewidth": 0.8, "shrinkB": 5},
        )
    axis.set_ylim(low, high)
