"""What the report marks in an answer."""

from eval.differences import Piece, differences


def test_what_an_answer_has_instead_is_marked_word_by_word() -> None:
    pieces = differences("python train.py --lr 0.1 --norm right", "python train.py --lr 0.15 --norm right")
    assert pieces == [
        Piece("same", "python train.py --lr "),
        Piece("left_out", "0.1"),
        Piece("added", "0.15"),
        Piece("same", " --norm right"),
    ]


def test_the_pieces_without_what_is_left_out_are_the_answer() -> None:
    answer = "python train.py\n  --lr 0.15\t--more"
    pieces = differences("python train.py --lr 0.1 --norm right", answer)
    assert "".join(piece.text for piece in pieces if piece.kind != "left_out") == answer


def test_an_answer_with_nothing_in_common_is_left_as_it_is() -> None:
    prose = "You can simply replace the dataset with your own description of the task."
    assert differences("python train.py --lr 0.1 --norm right", prose) == [Piece("same", prose)]


def test_a_huge_answer_is_not_compared() -> None:
    assert len(differences("python train.py", "python train.py " + "x " * 1_000_000)) == 1
