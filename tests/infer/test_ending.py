"""A candidate ends where more text would not count."""

from infer.engines.ending import Ending


def test_a_closed_code_block_ends_a_candidate() -> None:
    ending = Ending()
    assert not ending.is_closed("```bash\npython a.py\n``")
    assert ending.is_closed("```bash\npython a.py\n```")


def test_only_text_that_can_close_a_block_is_looked_at() -> None:
    ending = Ending()
    assert ending.may_close_in("a`")
    assert ending.may_close_in("~")
    assert not ending.may_close_in("python a.py")


def test_the_first_stop_text_cuts() -> None:
    ending = Ending(("\n\n", "END"))
    assert ending.stops_in("a\n\nb")
    assert not ending.stops_in("a\nb EN")
    assert ending.cut("a END b\n\nc") == "a "
    assert ending.cut("a\n\nb END") == "a"
    assert ending.cut("a b") == "a b"
