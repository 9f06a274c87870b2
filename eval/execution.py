"""Running candidates in the sandbox: several at a time, each distinct one once, failures of ours again."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from eval.checkouts import Checkout
from eval.environments import DEFAULT, Environment
from eval.sandbox.interface import Limits, Outcome, Program, Sandbox
from mlbench_data.bad_input import BadInput
from mlbench_data.files import sha256_of
from mlbench_data.progress import progress
from mlbench_data.rows import BASH, Row


@dataclass(frozen=True)
class Runner:
    """Everything that decides what becomes of a candidate, apart from the candidate.

    `checkouts` are the repositories' by name, None where there is none, below the folder `repositories`;
    `environments` say by lower-case name what a repository needs beside `python` and `limits`; `python` is
    None where every repository has an image of its own.
    """

    sandbox: Sandbox
    limits: Limits
    repositories: Path
    checkouts: dict[str, Checkout | None]
    python: Path | None
    workers: int
    environments: dict[str, Environment] = field(default_factory=dict)

    def identity(self, row: Row, code: str) -> str:
        """The hash of what decides the outcome: answer, row, checkout, limits, sandbox and interpreter."""
        return sha256_of(
            {
                "code": code,
                "row": row.as_dict(),
                "checkout": checkout.content if (checkout := self.checkouts[row.repository]) else None,
                "limits": asdict(self.limits),
                "sandbox": self.sandbox.describe(),
                "python": str(self.python),
                "environment": asdict(self.environment(row)),
            }
        )

    def environment(self, row: Row) -> Environment:
        """What the row's repository needs."""
        return self.environments.get(row.repository.lower(), DEFAULT)

    def run(self, row: Row, code: str) -> Outcome:
        """Runs one answer to a row. A failure that is not the answer's comes back as `infrastructure`."""
        checkout = self.checkouts[row.repository]
        if checkout is None:
            place = self.repositories / row.repository
            return _infrastructure(f"no checkout of {row.repository} at {place}")
        environment = self.environment(row)
        limits = replace(self.limits, seconds=environment.timeout or self.limits.seconds)
        try:
            python = self.interpreter(environment)
            if python is None:
                return _infrastructure(
                    f"no interpreter {environment.python or 'python'} for {row.repository}"
                )
            program = Program(
                code=code,
                kind="bash" if row.type == BASH else "python",
                repository=checkout.folder,
                path=row.path,
                python=python,
                prefix="\n".join(filter(None, (environment.prefix, row.prefix_code))),
                environment=environment.variables,
                image=environment.image,
                devices=environment.devices,
            )
            return self.sandbox.run(program, limits)
        except OSError as error:
            return _infrastructure(f"{type(error).__name__}: {error}")
        except BadInput as error:
            if environment.python is None and environment.image is None:
                raise
            return _infrastructure(str(error))

    def interpreter(self, environment: Environment) -> Path | None:
        """What `python` means in an environment: an image has one of its own."""
        if environment.python is None and environment.image is None:
            return self.python
        return self.sandbox.find_python(environment.python, environment.image)


def _infrastructure(detail: str) -> Outcome:
    return Outcome("infrastructure", None, 0.0, None, "", "", detail)


def run_all(runner: Runner, jobs: dict[str, tuple[Row, str]], what: str) -> Iterator[tuple[str, Outcome]]:
    """Outcomes by identity, as they come. What ended as `infrastructure` is tried once more at the end."""
    again: dict[str, tuple[Row, str]] = {}
    for identity, outcome in _run_once(runner, jobs, what):
        if outcome.ending == "infrastructure":
            again[identity] = jobs[identity]
        else:
            yield identity, outcome
    if again:
        print(
            f"{len(again)} runs failed for reasons of the infrastructure; trying them again", file=sys.stderr
        )
        yield from _run_once(runner, again, f"{what} again")


def _run_once(runner: Runner, jobs: dict[str, tuple[Row, str]], what: str) -> Iterator[tuple[str, Outcome]]:
    pool = ThreadPoolExecutor(runner.workers)
    try:
        running = {pool.submit(runner.run, row, code): identity for identity, (row, code) in jobs.items()}
        finished = ([done] for done in as_completed(running))
        for [done] in progress(finished, len(running), what):
            yield running[done], done.result()
    finally:
        pool.shutdown(cancel_futures=True)
