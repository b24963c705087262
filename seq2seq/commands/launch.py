"""Running a command under Hydra: once, or with -m once per job."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from importlib import import_module
from typing import Any

from omegaconf import DictConfig
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from seq2seq.commands.arguments import CommandLine, parse
from seq2seq.commands.choices import check_folder, config_dir
from seq2seq.commands.configuration import Outcome, checked
from seq2seq.commands.explain import FILE_ERRORS, explain
from seq2seq.commands.workers import enter_worker, preemptible
from seq2seq.errors import UserError


def launch(command: str, arguments: list[str]) -> int:
    """Compose `command`'s configuration as Hydra does and call its `main` with it. Returns the exit status.

    Raises:
        UserError: settings that cannot work. Of several jobs the earlier errors are printed.
    """
    line = parse(command, arguments)
    for folder in line.folders:
        check_folder(folder)
    os.environ["HYDRA_FULL_ERROR"] = "1"
    with preemptible() if command in ("train", "compare") else nullcontext():
        return _run(command, line)


def _run(command: str, line: CommandLine) -> int:
    import hydra

    job = Job(command, line)
    sys.argv = [f"seq2seq {command}", *line.options, *line.overrides]
    try:
        hydra.main(version_base="1.3", config_path=str(config_dir()), config_name=command)(job)()
    except Exception as error:
        if job.errors:  # the sweeper missed an objective
            raise job.errors[0] from None
        raise job.refusal(error) from error
    for earlier in job.errors[:-1]:
        print(f"error: {earlier}", file=sys.stderr)
    if job.errors:
        raise job.errors[-1]
    return job.status


class Job:
    """Function that Hydra calls, perhaps several times and in other processes.

    status: the highest exit status so far. errors: of jobs in this process; Hydra would print them its own way.
    """

    def __init__(self, command: str, line: CommandLine) -> None:
        self.status = 0
        self.errors: list[Exception] = []
        self._command = command
        self._line = line
        self._program = sys.argv[0]
        self._process = os.getpid()
        self._composed = False

    def __call__(self, config: DictConfig) -> float | None:
        """Run one job and return its objective, for sweepers."""
        self._composed = True
        enter_worker()
        # The other processes of a training are started with this command line.
        sys.argv = [self._program, self._command, *self._line.options, *self._line.overrides]
        try:
            config = checked(config, self._command, self._line.overrides)
            outcome = import_module(f"seq2seq.commands.{self._command}").main(config)
        except (UserError, OSError, MemoryError, MissingMandatoryValue) as error:
            if os.getpid() != self._process:  # a launcher's process can only return an exception
                raise
            self.errors.append(self.refusal(error))
            return None
        if not isinstance(outcome, Outcome):
            outcome = Outcome(outcome or 0)
        self.status = max(self.status, outcome.status)
        return outcome.objective

    def refusal(self, error: Exception) -> Any:
        """Explain an error that Hydra or OmegaConf raised because of the settings; return any other as it is."""
        from hydra.errors import HydraException

        kinds = (HydraException, OmegaConfBaseException)
        if isinstance(error, kinds) or (not self._composed and isinstance(error, FILE_ERRORS)):
            return UserError(explain(error, self._command, self._line.overrides, self._line.folders))
        return error
