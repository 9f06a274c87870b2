"""The one exception for input that a user can mend."""


class BadInput(Exception):
    """What is wrong, where (file, line, key) and what would be right, in one line.

    `run_script` prints it and exits with code 2.
    """


class JobFailed(Exception):
    """What was asked for is right and could not be done. One line, as for BadInput, and exit code 1."""
