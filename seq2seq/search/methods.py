"""Names of the searches in configurations and requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from seq2seq.errors import UserError
from seq2seq.search.beam import BeamSearch
from seq2seq.search.greedy import GreedySearch
from seq2seq.search.options import Search
from seq2seq.search.sampling import Sampling

METHODS: dict[str, type[BeamSearch] | type[GreedySearch] | type[Sampling]] = {
    "beam": BeamSearch,
    "greedy": GreedySearch,
    "sampling": Sampling,
}

SearchChoice = Search | Mapping[str, Any] | str | None
"""A search, changed options of the model's own search, the name of a method, or None for the model's own search."""


def chosen_search(choice: SearchChoice, own: Search) -> Search:
    """Return the search that `choice` means for a model whose own search is `own`.

    Raises:
        UserError: not a search, an unknown method, or options that `with_options` refuses.
    """
    if choice is None:
        return own
    if isinstance(choice, str) and choice in METHODS:
        return METHODS[choice]()
    if isinstance(choice, Mapping):
        return with_options(own, choice)
    if isinstance(choice, (str, type)) or not callable(choice) or not hasattr(choice, "ranking"):
        raise UserError(
            f"search={choice!r} is not a search; give one of seq2seq.search, a name ({', '.join(METHODS)}) or a "
            "mapping of options"
        )
    return choice


def method_name(search: Search) -> str:
    return next(name for name, kind in METHODS.items() if type(search) is kind)


def search_settings(search: Search) -> dict[str, Any]:
    """Describe a search as a configuration node."""
    return {"_target_": f"seq2seq.search.{type(search).__name__}", **asdict(search)}  # type: ignore[call-overload]


def with_options(search: Search, options: Mapping[str, Any]) -> Search:
    """Return the search with some options changed.

    Raises:
        UserError: an option that the method does not have, or a value that it refuses.
    """
    for name in options:
        having = [method for method, each in METHODS.items() if name in {field.name for field in fields(each)}]
        if (own := method_name(search)) not in having:
            others = f", but of {' and '.join(f'search={method}' for method in having)}" if having else ""
            raise UserError(f"search.{name} is not an option of {own} search{others}")
    changed: Search = replace(search, **options)  # type: ignore[type-var]
    return changed


def with_n_best(search: Search, n_best: int | None) -> Search:
    """Return the search with another n_best.

    Raises:
        UserError: n_best is not 1 and the search finds one translation.
    """
    if n_best is None:
        return search
    if isinstance(search, BeamSearch | Sampling):
        return replace(search, n_best=n_best)
    if n_best != 1:
        raise UserError(f"n_best={n_best} needs search=beam or search=sampling; greedy search finds one translation")
    return search
