"""Progress of a comparison, from the folders of its runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from seq2seq.run import Run


class Progress:
    """Progress of a comparison, for any of its processes. began: time.time() at the start."""

    def __init__(self, folders: Sequence[Path], began: float) -> None:
        self._runs = [Run(folder) for folder in folders]
        self._began = began
        self._before = {run.folder for run in self._runs if run.finished}

    def __str__(self) -> str:
        """'3 of 9 runs finished; 24 min, about 48 min to go'."""
        finished = [run for run in self._runs if run.finished]
        unfinished = [run for run in self._runs if run not in finished]  # other processes finish runs meanwhile
        text = f"{len(finished)} of {len(self._runs)} runs finished; {(time.time() - self._began) / 60:.0f} min"
        own = [run for run in finished if run.folder not in self._before]
        if own and unfinished:
            text += f", about {self._seconds_left(own, unfinished) / 60:.0f} min to go"
        return text

    def _seconds_left(self, finished: Sequence[Run], unfinished: Sequence[Run]) -> float:
        """Estimate the time to go, as if each run took as long as the mean of the `finished` ones."""
        durations = [run.metrics_file.stat().st_mtime - (run.started or self._began) for run in finished]
        mean = sum(durations) / len(durations)
        starts = [run.started or 0.0 for run in unfinished]
        running = [max(0.0, mean - (time.time() - start)) for start in starts if start >= self._began]
        waiting = len(unfinished) - len(running)
        # The run that has just finished leaves room for the next.
        return (sum(running) + waiting * mean) / (len(running) + 1) if waiting else max(running)
