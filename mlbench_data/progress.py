"""How far a long stage is: a bar on a terminal, a plain line now and then otherwise."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TypeVar

from tqdm import tqdm

Batch = TypeVar("Batch", bound=Sized)

SECONDS_BETWEEN_LINES = 10.0


def progress(
    batches: Iterable[Batch],
    total: int,
    what: str,
    done: int = 0,
    note: Callable[[], str] = str,
) -> Iterator[Batch]:
    """Passes batches of finished items on and reports on stderr how many are through, how fast, and the
    time left.

    `total` counts the items that are `done` from an earlier run as well; `note` is asked for what else a
    line should say.
    """
    if sys.stderr.isatty():
        with tqdm(desc=what, total=total, initial=done, dynamic_ncols=True) as bar:
            for batch in batches:
                yield batch
                bar.set_postfix_str(note(), refresh=False)
                bar.update(len(batch))
        return
    print(f"{what} {done}/{total}", file=sys.stderr, flush=True)
    start = last = time.monotonic()
    count = 0
    for batch in batches:
        yield batch
        count += len(batch)
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES or done + count == total:
            last = now
            line = progress_line(what, done + count, total, count / max(now - start, 1e-9))
            print(", ".join(filter(None, [line, note()])), file=sys.stderr, flush=True)


def progress_line(what: str, count: int, total: int, speed: float) -> str:
    """`sampling 12/60 (20%), 1.5/s, 0:32 left`; `speed` is in items a second."""
    left = int((total - count) / speed)
    share = 100 * count // total if total else 100
    return f"{what} {count}/{total} ({share}%), {speed:.3g}/s, {left // 60}:{left % 60:02} left"
