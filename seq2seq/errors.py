"""The one exception that a user is meant to read, and how to tell that memory ran out."""


class UserError(Exception):
    """Something the user can put right: a file, a line, a key or a value.

    The message is one or two lines: what is wrong and where, then the way out. The command line prints it without a
    traceback and exits with `status`.
    """

    status = 2


OUT_OF_MEMORY = "out of memory\nLower data.max_tokens, trainer.validation_tokens, max_tokens or model.width."


def out_of_memory(error: BaseException) -> bool:
    """Whether it says that memory ran out: Python's, a GPU's (torch's own error), or a CPU's (torch's words alone)."""
    known = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return known or "can't allocate memory" in str(error)
