"""How a script ends early: input that a user can mend, a job that failed, a signal that was obeyed."""


class BadInput(Exception):
    """What is wrong, where (file, line, key) and what would be right, in one line; several problems that were
    found together are several arguments, a line each.

    `run_script` prints them and exits with code 2.
    """

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


class JobFailed(Exception):
    """What was asked for is right and could not be done. One line, as for BadInput, and exit code 1."""


class Stopped(Exception):
    """A signal asked the script to leave, and what was done so far is saved. One line, and the exit code with
    which shells report that signal: 143 for SIGTERM, 138 for SIGUSR1.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + number
