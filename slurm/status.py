"""How far a sweep is: a line for each cell, and why what has failed has failed."""

from dataclasses import dataclass

from slurm.jobs import STAGES, Job, Stage
from slurm.queue_state import Queued
from slurm.sweep import Cell


@dataclass(frozen=True)
class State:
    """What is to be said of one job, in a word or two. `reason` says more about what has gone wrong."""

    words: str
    is_done: bool = False
    reason: str | None = None


def print_status(cells: list[Cell], jobs: list[Job], queued: dict[str, list[Queued]]) -> int:
    """A line for each cell with the state of each stage, then the reasons of failures. The exit code is 1 if
    there are any, and nothing is under way.
    """
    states = states_of(jobs, queued)
    stages: list[Stage] = [stage for stage in STAGES if stage != "report"]
    lines = [["cell", *stages], *([cell.name, *_of_cell(cell, stages, states)] for cell in cells)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print("  ".join(text.ljust(size) for text, size in zip(line, widths, strict=True)).rstrip())
    failed = {name: state.reason for name, state in states.items() if state.reason}
    for name, reason in failed.items():
        print(f"{name}: {reason}")
    done = sum(states[f"{cell.name}.collect"].is_done for cell in cells)
    print(f"{done} of {len(cells)} cells done; report {states['sweep.report'].words}")
    alive = any(item.is_alive for found in queued.values() for item in found)
    return 1 if failed and not alive else 0


def _of_cell(cell: Cell, stages: list[Stage], states: dict[str, State]) -> list[str]:
    owners = [cell.adapter if stage == "train" else cell.name for stage in stages]
    return [
        "-" if owner is None else states[f"{owner}.{stage}"].words
        for owner, stage in zip(owners, stages, strict=True)
    ]


def states_of(jobs: list[Job], queued: dict[str, list[Queued]]) -> dict[str, State]:
    """The state of each job by its name. What has not begun because of a failure before it is `held up`."""
    states: dict[str, State] = {}
    stuck: set[str] = set()
    for job in jobs:
        found = queued.get(job.name, [])
        state = _state(job, found)
        before = next((name for name in job.needs if name in stuck), None)
        if (
            before
            and not state.is_done
            and not any(item.is_alive for item in found)
            and job.stage != "report"
        ):
            state = State("held up")
        if state.is_done and job.stage != "report" and not all(states[name].is_done for name in job.needs):
            state = State("outdated")  # what it was made from is being made again
        if state.reason or state.words == "held up":
            stuck.add(job.name)
        states[job.name] = state
    return states


def _state(job: Job, found: list[Queued]) -> State:
    missing = job.missing()
    is_renewed = job.stage == "report" and any(item.is_alive for item in found)
    if not missing and not is_renewed:
        return State("done", is_done=True)
    count = f" {len(job.parts) - len(missing)}/{len(job.parts)}" if job.shards else ""
    alive = [item for item in found if item.is_alive and (is_renewed or any(map(item.covers, missing)))]
    left = [part for part in missing if not any(item.covers(part) for item in alive)]
    reason = _reason(
        job, {part: text for part in left if (text := job.failure(part) or _broken(found, part))}
    )
    if any(not item.is_waiting for item in alive):
        return State(f"running{count}", reason=reason)
    if alive:
        why = "" if alive[0].reason in ("Dependency", "None") else f" ({alive[0].reason})"
        return State(f"waiting{count}{why}", reason=reason)
    if reason:
        return State(f"failed{count}", reason=reason)
    cancelled = [item for item in found if item.state == "CANCELLED" and "Dependency" not in item.reason]
    is_cancelled = any(item.covers(part) for item in cancelled for part in left)
    return State(f"{'cancelled' if is_cancelled else 'not submitted'}{count}")


def _reason(job: Job, failures: dict[int, str]) -> str | None:
    """The first failure, and how many there are."""
    if not failures:
        return None
    part, text = next(iter(failures.items()))
    where = f"shard {part}: " if job.shards else ""
    return f"{where}{text}" + (f"; and {len(failures) - 1} more shards" if len(failures) > 1 else "")


def _broken(found: list[Queued], part: int) -> str | None:
    """What Slurm says of a part that ended without being done and without a word of its own."""
    ended = [item for item in found if not item.is_alive and item.covers(part)]
    if not ended:
        return None
    newest = max(ended, key=lambda item: int(item.number))
    if newest.state in ("COMPLETED", "CANCELLED"):
        return None
    if newest.comment:
        return newest.comment
    why = "" if newest.reason in ("None", "") else f" ({newest.reason})"
    return f"{newest.state.lower().replace('_', ' ')} by Slurm{why}"
