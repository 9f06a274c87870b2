"""Progress without a terminal: every item comes through, lines are rare, the last one is always there."""

import pytest

from mlbench_data.progress import progress, progress_line


def test_items_pass_and_the_first_and_the_last_line_are_always_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    batches = [["a"], ["b", "c"]]
    assert list(progress(iter(batches), 5, "sampling", done=2)) == batches
    written = capsys.readouterr().err.splitlines()
    assert len(written) == 2
    assert written[0] == "sampling 2/5"
    assert written[1].startswith("sampling 5/5 (100%), ")


def test_a_line_has_share_speed_and_time_left() -> None:
    assert progress_line("sampling", 12, 60, 1.5) == "sampling 12/60 (20%), 1.5/s, 0:32 left"
