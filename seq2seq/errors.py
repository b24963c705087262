"""The one exception a user is meant to read."""


class UserError(Exception):
    """Something the user can put right: a file, a line, a key or a value.

    The message is one or two lines: what is wrong and where, then the way out. The command line prints it without a
    traceback and exits with status 2.
    """
