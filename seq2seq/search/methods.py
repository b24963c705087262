"""The searches by the names that configurations and requests give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
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


def method_name(search: Search) -> str:
    return next(name for name, kind in METHODS.items() if type(search) is kind)


def with_options(search: Search, options: Mapping[str, Any]) -> Search:
    """The same search with other values of some options.

    Raises:
        UserError: an option that the method does not have, or a value that it refuses.
    """
    kind: Any = search
    for name in options:
        having = [method for method, each in METHODS.items() if name in {field.name for field in fields(each)}]
        if (own := method_name(search)) not in having:
            others = f", but of {' and '.join(f'search={method}' for method in having)}" if having else ""
            raise UserError(f"search.{name} is no option of {own} search{others}")
    changed: Search = replace(kind, **options)
    return changed
