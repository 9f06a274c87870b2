"""Grading candidates: checks for all, runs for those that may pass in either mode, resumed from the disk."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.candidates import Candidates
from eval.checks import Check, Mode, check_both
from eval.errors import error_of
from eval.execution import Runner, run_all
from eval.grading import grade
from eval.results import Result, append_results, read_results, resume_results, tailed, write_results
from eval.sandbox.interface import Outcome
from mlbench_data.rows import Row


@dataclass(frozen=True)
class Evaluation:
    """How candidates are graded, and the results file. Without a runner nothing is run. `earlier` are results
    of other evaluations, whose outcomes are used too.
    """

    mode: Mode
    runner: Runner | None
    path: Path
    earlier: Sequence[Path] = ()

    def grade(self, rows: list[Row], candidates: Candidates, what: str) -> list[Result]:
        """Grades every candidate and writes the results in the order of rows and candidates.

        Outcomes that the file holds from an earlier run are used again where their identity is the same;
        new ones are appended as they come. Checks are always made afresh.
        """
        slots = list(self._slots(rows, candidates))
        outcomes = self._earlier_outcomes()
        waiting: dict[str, list[_Slot]] = {}
        for slot in slots:
            if slot.identity is not None and slot.identity not in outcomes:
                waiting.setdefault(slot.identity, []).append(slot)
        if self.runner is not None and waiting:
            append_results(self.path, (self._result(slot, None) for slot in slots if slot.identity is None))
            jobs = {identity: same[0].job for identity, same in waiting.items()}
            for identity, outcome in run_all(self.runner, jobs, what):
                outcomes[identity] = tailed(outcome)
                append_results(
                    self.path, (self._result(slot, outcomes[identity]) for slot in waiting[identity])
                )
        results = [self._result(slot, outcomes.get(slot.identity or "")) for slot in slots]
        write_results(self.path, results)
        return results

    def _slots(self, rows: list[Row], candidates: Candidates) -> Iterator["_Slot"]:
        for row in rows:
            reason = candidates.reasons.get(row.key, "no such candidate in the file")
            for number, code in enumerate(candidates.by_row[row.key]):
                checks = check_both(row, code or "")
                runs = any(check.ok for check in checks.values())
                identity = self.runner.identity(row, code or "") if self.runner is not None and runs else None
                yield _Slot(row, number, code, checks, "" if code is not None else reason, identity)

    def _earlier_outcomes(self) -> dict[str, Outcome]:
        saved = [resume_results(self.path), *map(read_results, self.earlier)]
        found = ((result.identity, result.outcome()) for results in saved for result in results)
        return {identity: outcome for identity, outcome in found if identity and outcome}

    def _result(self, slot: "_Slot", outcome: Outcome | None) -> Result:
        check = slot.checks[self.mode]
        status, stage = grade(
            slot.code,
            check,
            self.mode,
            execute=self.runner is not None,
            ending=outcome.ending if outcome else None,
            exit_code=outcome.exit_code if outcome else None,
        )
        stderr = outcome.stderr if outcome else ""
        error = error_of(slot.row, status, slot.code, check.missing, stderr)
        return Result(
            github_id=slot.row.github_id,
            id=slot.row.id,
            candidate=slot.candidate,
            repository=slot.row.repository,
            status=status,
            stage=stage,
            error_class=error.kind if error else None,
            type_ok=check.type_ok,
            parameters_ok=check.parameters_ok,
            checks=slot.checks,
            code=slot.code,
            ending=outcome.ending if outcome else None,
            exit_code=outcome.exit_code if outcome else None,
            seconds=outcome.seconds if outcome else None,
            peak_memory=outcome.peak_memory if outcome else None,
            stdout=outcome.stdout if outcome else "",
            stderr=stderr,
            detail=outcome.detail if outcome else slot.reason,
            identity=slot.identity,
            evidence=error.evidence if error else "",
        )


@dataclass(frozen=True)
class _Slot:
    """One place for a candidate. `identity` is None if there is nothing to run."""

    row: Row
    candidate: int
    code: str | None
    checks: dict[str, Check]
    reason: str
    identity: str | None

    @property
    def job(self) -> tuple[Row, str]:
        return self.row, self.code or ""
