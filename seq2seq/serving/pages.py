"""The pages: one self-contained file each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from seq2seq.evaluation.metrics import METRICS
from seq2seq.report.draw import short_number
from seq2seq.report.systems import colors

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
"""Headers under which a page loads nothing from outside and talks only to this service."""

SHARED = ("theme.css", "heatmap.css", "heatmap.js")
"""Files of the report that the page includes."""

EXAMPLES = [
    "A friend should cry.",
    "A brave child can send Sophie the suitcase.",
    "Before a quiet author drank the warm water, Peter returned to Berlin.",
    "Because we do not sleep with Emma, the French soldier thinks about a report in the new Italian hotel now.",
    "Peter could recommend the sausage to Sophie, so strong brothers kiss this girl behind a restaurant in which Maria "
    "disappears, but we follow Martin.",
]
"""English sentences of growing length (from the built-in grammar), for models without a test set."""


def main_page(models: Sequence[Mapping[str, Any]], quality: Mapping[str, Any] | None) -> str:
    """The page at `/`. models: their descriptions. quality: see `quality_by_length`."""
    families = colors([model["architecture"] for model in models])
    shown = [{**model, "color": color, "about": about(model)} for model, color in zip(models, families, strict=True)]
    source, target = models[0]["source_language"], models[0]["target_language"]
    payload = {
        "models": shown,
        "quality": quality,
        "metrics": [{"key": metric.key, "name": metric.name} for metric in METRICS.values()],
        "examples": [] if quality or source not in (None, "en") else EXAMPLES,
    }
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            models=shown,
            languages=f"{source} to {target}" if source and target else None,
            quality=quality,
            other_searches=other_searches(models, quality),
            payload=payload,
            assets=_assets("page.css", "page.js"),
        )
    )


def about(model: Mapping[str, Any]) -> str:
    """One line about a model, from its description."""
    heads = model["heads"]
    attention = f"attention with {heads} heads" if heads > 1 else "attention" if heads else "no attention"
    size = [] if model["parameters"] is None else [f"{short_number(model['parameters'])} parameters"]
    return ", ".join([model["architecture"], attention, *size])


def other_searches(models: Sequence[Mapping[str, Any]], quality: Mapping[str, Any] | None) -> list[str]:
    """A sentence on each model whose scores were measured with another search than it answers with here."""
    sentences = []
    for model in models:
        scored = (quality or {}).get("searches", {}).get(model["name"])
        if scored is not None and scored != model["search"]:
            changed = [key for key in (scored | model["search"]) if scored.get(key) != model["search"].get(key)]
            was = ", ".join(f"{key} {scored[key]}" for key in changed if key in scored)
            here = ", ".join(f"{key} {model['search'][key]}" for key in changed if key in model["search"])
            sentences.append(f"{model['name']} was scored with {was}; it answers here with {here}.")
    return sentences


def docs_page(schema: Mapping[str, Any]) -> str:
    """The OpenAPI description as a page."""
    return _environment().get_template("docs.html.j2").render(schema=schema, assets=_assets("page.css"))


def _assets(*own: str) -> dict[str, Markup]:
    report, serving = (files(name).joinpath("templates") for name in ("seq2seq.report", "seq2seq.serving"))
    return {
        name: Markup(folder.joinpath(name).read_text(encoding="utf-8"))
        for folder, names in ((report, SHARED), (serving, own))
        for name in names
    }


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("seq2seq.serving"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
