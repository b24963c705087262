"""Errors for users, and the detection of memory that ran out."""


class UserError(Exception):
    """An error that the user can correct: in a file, a line, a key or a value.

    The message is one or two lines: what is wrong and where, then the way out. The command line prints it without a
    traceback and exits with `status`.
    """

    status = 2


OUT_OF_MEMORY = "out of memory\nLower data.max_tokens, trainer.validation_tokens, max_tokens or model.width."


def out_of_memory(error: BaseException) -> bool:
    """True if memory ran out: of Python, of a GPU (torch's own error), or of a CPU (recognized by torch's message)."""
    known = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return known or "can't allocate memory" in str(error)
