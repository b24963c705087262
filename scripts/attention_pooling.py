"""Attention pooling: a noisy curve fitted by average pooling and by kernel regression, fixed and learned.

    python scripts/attention_pooling.py --output attention_pooling.png

Queries are the points of prediction, keys the observed inputs, values the observed outputs. Each fit is a weighted
average of the values; only the weights differ. The learned width minimizes the squared error of predicting each
observation from all others.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import torch
from torch import Tensor

from seq2seq.attention import AveragePooling, NadarayaWatson

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def curve(x: Tensor) -> Tensor:
    return 2 * x.sin() + x**0.8


def observe(count: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """`count` sorted inputs between 0 and 5 and noisy outputs, both (1, count, 1)."""
    generator = torch.Generator().manual_seed(seed)
    keys = (torch.rand(count, generator=generator) * 5).sort().values.view(1, -1, 1)
    return keys, curve(keys) + noise * torch.randn(keys.shape, generator=generator)


def learn_width(keys: Tensor, values: Tensor, updates: int = 300) -> NadarayaWatson:
    """Kernel regression whose width is learned by predicting each observation from all the others."""
    model = NadarayaWatson(width=1.0, learned=True)
    others = ~torch.eye(keys.shape[1], dtype=torch.bool).unsqueeze(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(updates):
        optimizer.zero_grad()
        prediction, _ = model(keys, keys, values, others)
        (prediction - values).square().mean().backward()
        optimizer.step()
    return model


def draw(path: Path, keys: Tensor, values: Tensor) -> dict[str, float]:
    """Draw the three fits and their weights; return each fit's mean squared error against the noiseless curve."""
    queries = torch.linspace(0, 5, 100).view(1, -1, 1)
    learned = learn_width(keys, values)
    models = {
        "average pooling": AveragePooling(),
        "Gaussian kernel, width 1": NadarayaWatson(width=1.0),
        f"learned width {learned.score.width.item():.2f}": learned,
    }
    figure, axes = plt.subplots(2, len(models), figsize=(12, 7), layout="constrained")
    errors = {}
    for (name, model), fit, heat in zip(models.items(), axes[0], axes[1], strict=True):
        with torch.no_grad():
            prediction, weights = model(queries, keys, values)
        x, truth, guess = (part.flatten().numpy() for part in (queries, curve(queries), prediction))
        errors[name] = (prediction - curve(queries)).square().mean().item()
        fit.scatter(keys.flatten().numpy(), values.flatten().numpy(), s=14, color="0.6", label="observed")
        fit.plot(x, truth, "--", color="tab:blue", label="truth")
        fit.plot(x, guess, color="tab:red", label="fit")
        fit.set(title=f"{name}\nmean squared error {errors[name]:.3f}", xlabel="x", ylabel="y")
        fit.legend()
        image = heat.imshow(weights[0].numpy(), aspect="auto", origin="lower", cmap="viridis", vmin=0)
        heat.set(xlabel="key (observations, in order of x)", ylabel="query (x from 0 to 5)")
        heat.set_yticks([0, 20, 40, 60, 80, 99], ["0", "1", "2", "3", "4", "5"])
        figure.colorbar(image, ax=heat, label="attention weight")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return errors


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("attention_pooling.png"), help="picture to write")
    parser.add_argument("--observations", type=int, default=50)
    parser.add_argument("--noise", type=float, default=0.5, help="standard deviation of the noise")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    errors = draw(options.output, *observe(options.observations, options.noise, options.seed))
    for name, error in errors.items():
        print(f"{name:28s} mean squared error {error:.3f}")
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
