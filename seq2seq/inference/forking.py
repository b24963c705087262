"""Models in a process that was forked from one that had loaded or used them.

A fork copies one thread; a library that waits in the child for the others waits forever. So the child limits torch to
one thread and loads models of other libraries again.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import torch

Value = TypeVar("Value")


class PerProcess(Generic[Value]):
    """An object of a library that has threads, made again in each process that uses it.

    make: creates it; with `functools.partial` over a function of a module, this can be pickled.
    """

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._value: Value | None = make()
        _live.add(self)

    def get(self) -> Value:
        if self._value is None:
            self._value = self._make()
        return self._value

    def leave_behind(self) -> None:
        """Forget the parent's object without destroying it: its end would wait for the parent's threads."""
        if self._value is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._value))
            self._value = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._make,)


_live: WeakSet[PerProcess[Any]] = WeakSet()
_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True
    for one in list(_live):
        one.leave_behind()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def limit_threads_after_fork() -> None:
    """Keep torch to one thread in a forked process; called before torch is used there."""
    global _forked
    if _forked:
        _forked = False
        torch.set_num_threads(1)
