"""Limits on the requests of clients."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from seq2seq.errors import UserError


@dataclass(frozen=True)
class Limits:
    """Limits that keep clients from taking the service down.

    body: bytes of a request (413). text: characters of one text; texts: texts of one request (422). beam_size: beams or
    samples of a text; output: greatest maximum length of a translation that a request may ask for; search: tokens of
    all beams or samples of a text together; attention: attention weights of one response (422). queue: texts that wait
    for one model (429). seconds: for a request's head to arrive (else the connection is closed), for its body (408),
    and then for its translations (503). connections: requests in progress (503; /health and /metrics are always
    answered). A tenth more connections may be open.

    `search` also bounds the texts that are translated together, and so the memory of one pass. The model's own search
    is never refused; a text that exceeds the bound with it is translated alone.
    """

    body: int = 1_000_000
    text: int = 5_000
    texts: int = 200
    beam_size: int = 20
    output: int = 2_000
    search: int = 30_000
    attention: int = 1_000_000
    queue: int = 1_000
    seconds: float = 30.0
    connections: int = 1_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            number = isinstance(value, int if field.name != "seconds" else (int, float)) and not isinstance(value, bool)
            if not number or not 0 < value < math.inf:
                what = "a number above 0" if field.name == "seconds" else "a whole number of at least 1"
                raise UserError(f"limits.{field.name}={value!r} must be {what}")
        if self.texts > self.queue:
            raise UserError(
                f"limits.texts={self.texts} exceeds limits.queue={self.queue}: such a request never fits; raise queue"
            )
