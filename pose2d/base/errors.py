"""The one exception that means: the user can fix this."""


class UserError(Exception):
    """A mistake in what was given. The message names the thing, what was expected, and what to do.

    Commands print it as one sentence and leave with exit code 2; no traceback.
    """
