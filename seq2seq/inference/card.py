"""The model card of a bundle or an export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

LICENSE_AND_USE = """\
## License

The weights are derived from the training data, whose license and terms of use apply to them. Check these before
you share the model.

## Use

```
seq2seq translate checkpoint=THIS_FOLDER < input.txt > output.txt
```

```python
from seq2seq import Translator

for translation in Translator.load("THIS_FOLDER").translate(["A sentence."]):
    print(translation.text, translation.score)
```
"""


def model_card(
    config: Mapping[str, Any],
    parameters: int,
    metrics: Mapping[str, Any] | None = None,
    verification: str | None = None,
    quantization: str | None = None,
) -> str:
    """Markdown that describes the model, its training, its scores and its use.

    config: a bundle's. metrics: as in a run's metrics.json, as far as they are known. verification: how an export
    agrees with the model that it was made from. quantization: the type of its weights, if not float32; these were not
    scored, so that the card has no scores then.
    """
    metrics = metrics or {}
    languages = config.get("languages") or {}
    source, target = languages.get("source") or "source", languages.get("target") or "target"
    architecture = short_name(config["model"])
    vocabulary = config["vocabulary"]
    sizes = (
        f"{vocabulary['source']:,} joint"
        if vocabulary["joint"]
        else (f"{vocabulary['source']:,} source, {vocabulary['target']:,} target")
    )
    lines = [
        "---",
        f"language: [{', '.join(code for code in languages.values() if code)}]",
        "tags: [translation, seq2seq]",
        "---",
        f"# {architecture} {source}-{target}",
        "",
        f"Translates {source} to {target}. Written by seq2seq {config['seq2seq']}, bundle format {config['format']}.",
        "",
        f"- Architecture: {architecture}, {parameters:,} parameters",
        f"- Vocabulary: {sizes} SentencePiece tokens",
        f"- Training data: {_data(metrics)}",
        *_training(metrics.get("training") or {}),
        *([f"- Trained further from: {metrics['checkpoint']}"] if metrics.get("checkpoint") else []),
        "",
        *_scores({} if quantization else metrics.get("splits") or {}, verification is not None),
        *_verification(verification, quantization),
        LICENSE_AND_USE,
        "## Configuration",
        "",
        "```yaml",
        yaml.safe_dump(
            {"model": config["model"], "search": config["search"]}, sort_keys=False, allow_unicode=True
        ).rstrip(),
        "```",
        "",
    ]
    return "\n".join(lines)


def short_name(node: Mapping[str, Any]) -> str:
    """The short name of what a node builds: rnn for seq2seq.models.create_rnn."""
    return str(node["_target_"]).rpartition(".")[2].removeprefix("create_")


def _data(metrics: Mapping[str, Any]) -> str:
    """The corpus by its name, and by the fingerprint of its content."""
    name, fingerprint = metrics.get("data") or "not recorded", metrics.get("corpus")
    return f"{name} (fingerprint {fingerprint})" if fingerprint else str(name)


def _training(training: Mapping[str, Any]) -> list[str]:
    if not training:
        return []
    epochs = training.get("epochs")
    return [
        f"- Training: {training.get('updates')} updates"
        + (f", {epochs:.1f} epochs" if isinstance(epochs, int | float) else "")
        + (f", {training['seconds'] / 3600:.2f} hours" if training.get("seconds") else "")
    ]


def _scores(splits: Mapping[str, Any], exported: bool) -> list[str]:
    """The section with the scores by test set; none without scores."""
    from seq2seq.evaluation.metrics import METRICS, PRIMARY

    scored = {name: split for name, split in splits.items() if split.get(PRIMARY.key)}
    if not scored:
        return []
    metrics = [metric for metric in METRICS.values() if any(split.get(metric.key) for split in scored.values())]
    rows, signatures, searches = [], [], []
    for name, split in scored.items():
        cells = [metric.cell(split.get(metric.key), interval=metric is PRIMARY) for metric in metrics]
        rows.append(f"| {' | '.join([name, str(split.get('segments', '')), *cells])} |")
        signatures += [f"`{split[metric.key]['signature']}`" for metric in metrics if split.get(metric.key)]
        searches += [f"`{_search(node)}`"] if (node := (split.get("decoding") or {}).get("search")) else []
    headings = [metric.name + (" [95% interval]" if metric is PRIMARY else "") for metric in metrics]
    return [
        "## Scores",
        "",
        *(["Measured with the original model, before the export.", ""] if exported else []),
        f"| {' | '.join(['test set', 'segments', *headings])} |",
        "|---" * (2 + len(metrics)) + "|",
        *rows,
        "",
        *([f"Decoded with {', '.join(dict.fromkeys(searches))}.", ""] if searches else []),
        f"Signatures: {', '.join(dict.fromkeys(signatures))}",
        "",
    ]


def _search(node: Mapping[str, Any]) -> str:
    """`BeamSearch(beam_size=5, ...)` for the plain configuration of a search."""
    options = ", ".join(f"{key}={value}" for key, value in node.items() if not key.startswith("_"))
    return f"{str(node.get('_target_')).rpartition('.')[2]}({options})"


def _verification(text: str | None, quantization: str | None) -> list[str]:
    """The section on an export's agreement with its original."""
    if text is None:
        return []
    unscored = f"The {quantization} weights were not scored. " if quantization else ""
    return ["## Verification", "", f"{unscored}Compared with the original model: {' '.join(text.split())}.", ""]
