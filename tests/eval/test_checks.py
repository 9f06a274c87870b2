"""The two sets of rules: what is an answer of the right kind, and when does it carry a parameter."""

from dataclasses import replace

import pytest

from eval.checks import Mode, check, check_both
from mlbench_data.rows import BASH, PYTHON, Row


def row(kind: str = BASH, **parameters: object) -> Row:
    return Row(
        github_id=1,
        github="https://example.org/somebody/repository",
        repo_id=1,
        id=1,
        path=".",
        arguments=repr({name.replace("__", " "): value for name, value in parameters.items()}),
        instruction="",
        oracle="",
        type=kind,
        prefix_code="",
        output="",
    )


def has(code: str, mode: Mode = "strict", kind: str = BASH, **parameters: object) -> bool:
    return check(row(kind, **parameters), code, mode).parameters_ok


def type_of(code: str, mode: Mode = "strict") -> str | None:
    return check(row(), code, mode).type


# strict: the type is what the text parses as


@pytest.mark.parametrize(
    "code",
    [
        "python ok.py",
        "python3 -u train.py --lr 0.1",
        "CUDA_VISIBLE_DEVICES=0 python -m package.train",
        "bash scripts/run.sh cora",
        "./run.sh",
        "cd examples\npython train.py",
        "cd examples && nohup python train.py > log.txt 2>&1 &",
        "for seed in 1 2; do python train.py --seed $seed; done",
        "accelerate launch train.py --config a.yaml",
        "fairseq-train data --arch transformer",
        "python train.py \\\n  --lr 0.1 \\\n  --epochs 5",
    ],
)
def test_a_command_that_runs_something_is_bash(code: str) -> None:
    assert type_of(code) == BASH


@pytest.mark.parametrize(
    "code",
    [
        "import torch\nprint(torch.ones(2))",
        "from model import Net\nnet = Net(dim=3)",
        "import os\nos.system('python train.py --lr 0.1')",
        "x = 3  # run train.py with this",
    ],
)
def test_what_parses_as_python_and_does_something_is_python(code: str) -> None:
    assert type_of(code) == PYTHON


@pytest.mark.parametrize(
    "code",
    [
        "",
        "  \n",
        "# python train.py",
        "echo train.py --lr 0.1",
        "cd examples; pip install -r requirements.txt",
        "You can train it with train.py and/or the script.",
        "train",
        "python",
        "python train.py --name 'unclosed",
        "def f(:\n    pass",
    ],
)
def test_what_runs_nothing_has_no_type(code: str) -> None:
    assert type_of(code) is None


@pytest.mark.parametrize(
    "code", ["+".join(["1"] * 5000) + "\nprint(1)", "x = 0x" + "f" * 9000, "python x.py \0"]
)
def test_a_degenerate_answer_is_graded_and_does_not_stop_the_evaluation(code: str) -> None:
    assert not check(row(lr="0.1"), code, "strict").ok


# strict: parameters of bash


@pytest.mark.parametrize(
    "code", ["--lr 0.1", "--lr=0.1", "-lr 0.1", "--lr 1e-1", "--lr '0.10'", "--rate .1", "0.1"]
)
def test_the_ways_to_give_a_number_on_a_command_line(code: str) -> None:
    assert has(f"python train.py {code}", lr="0.1")


@pytest.mark.parametrize("code", ["--lr 0.15", "--lr 0.01", "--lr 10.1", "--lr  # 0.1", "--name v0.1", ""])
def test_a_number_is_not_part_of_another(code: str) -> None:
    assert not has(f"python train.py {code}", lr="0.1")
    assert not has("python train.py --epochs 50", epochs="5")


def test_scientific_and_plain_notation_are_one_number() -> None:
    assert has("python train.py --lr 1e-4", lr="0.0001")
    assert has("python train.py --lr 0.0001", lr=1e-4)


def test_an_option_of_the_parameters_name_decides() -> None:
    assert not has("python train.py --lr 0.5 --decay 0.1", lr="0.1")
    assert has("python train.py --batch-size 16", batch_size="16", batch__size="16")


def test_words_after_an_option_s_value_take_nothing_from_it() -> None:
    assert has("python train.py --lr 0.1 data/cora.csv", lr="0.1", data="data/cora.csv")


def test_a_number_with_an_absurd_exponent_is_no_number() -> None:
    """A looping model writes such, and one candidate must not end the evaluation."""
    assert not has("python train.py --lr 1e99999999999999999999", lr="0.1")


def test_comments_and_echoed_text_do_not_count() -> None:
    assert not has("python train.py  # --dataset cora", dataset="cora")
    assert not has("echo --dataset cora\npython train.py", dataset="cora")
    assert has("# don't stop here\npython train.py --dataset cora#1", dataset="cora#1")


def test_a_requirement_written_as_an_option_asks_for_that_option() -> None:
    assert has("python test.py -b 16 -j8 --symfn max", a="-b 16", b="-j 8", c="--symfn max")
    assert not has("python test.py -b 32 --workers 16", a="-b 16")
    assert has("python test.py --amp", a="--amp")
    assert not has("python test.py", a="--amp")


def test_several_values_after_one_option_are_taken_together() -> None:
    assert has("python t.py --size 3 256 320 --kwargs window=8,10", size="3 256 320", window="8,10")
    assert not has("python t.py --size 3 256", size="3 256 320")


def test_text_stands_as_a_whole_or_as_whole_parts_of_a_path() -> None:
    assert has("python t.py --input data/amazon.csv", dataset="amazon")
    assert has("python t.py --file=./model/small/vocab.txt", model="./model/small")
    assert not has("python t.py --file=./old/model/small/vocab.txt", model="./model/small")
    assert not has("python t.py --net coca_ViT-B-32", model="ViT-B-32")


def test_the_name_of_the_script_carries_words() -> None:
    assert has("python test_dcp.py", train_or_test="test", model="DCP")
    assert not has("python test_dcpnet.py", model="dcp")


def test_variables_that_the_answer_sets_are_filled_in() -> None:
    assert has("DIR=./models\npython t.py --model $DIR/small", model="./models/small")


def test_a_file_descriptor_is_no_value() -> None:
    assert not has("python t.py 2>&1", gpu="1")
    assert not has("python t.py 2>&1", gpu="2")


# strict: parameters of python


def test_values_of_python_are_found_where_they_are_used() -> None:
    code = "from zoo import Net\nlr = 1e-4\nnet = Net(dim=512, shape=(2, 3))\nnet.fit(options={'epochs': 5})"
    assert has(code, kind=PYTHON, lr="0.0001", dim="512", epochs="5", model="Net", shape="(2,3)")
    assert not has(code, kind=PYTHON, dim="51")


def test_python_comments_docstrings_and_printed_text_do_not_count() -> None:
    assert not has('"""With cora."""\nrun()  # cora', kind=PYTHON, dataset="cora")
    assert not has('import x\nprint("batch size 16")', kind=PYTHON, batch="16")
    assert has('import x\nprint(x.run("cora"))', kind=PYTHON, dataset="cora")


def test_numbers_of_a_call_or_tuple_stand_together() -> None:
    assert has("x = torch.randn(50, 28, 28, 512)", kind=PYTHON, data="(50,28,28,512)")
    assert has("size = (50, 28)\nx = randn(*size)", kind=PYTHON, data="(50, 28)")
    assert not has("x = torch.randn(50, 28)", kind=PYTHON, data="(50,28,28)")


def test_words_of_a_string_and_commands_in_strings_count() -> None:
    assert has("draw(prompt='a rainbow owl')", kind=PYTHON, what="owl")
    assert has("import os\nos.system('python t.py --lr 0.1')", kind=PYTHON, lr="0.1")


# both


@pytest.mark.parametrize("mode", ["strict", "paper"])
def test_an_empty_answer_never_passes_even_without_parameters(mode: Mode) -> None:
    assert not check(row(PYTHON), " \n", mode).ok


def test_arguments_are_never_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect 7 of the reference: eval() on the data set's strings runs code."""
    with pytest.raises(ValueError, match="not a Python literal"):
        check_both(replace(row(), arguments="__import__('os').abort()"), "python t.py")


# paper: the published rules, with what is wrong with them


def test_paper_takes_substrings_in_any_case() -> None:
    assert has("python t.py --lr 0.15", "paper", lr="0.1")
    assert has("python t.py # CORA", "paper", dataset="cora")
    assert not has("x = randn(50, 28)", "paper", kind=PYTHON, data="(50,28)")


def test_paper_calls_bash_what_contains_a_script_and_a_blank() -> None:
    assert type_of("echo train.py --lr 0.1", "paper") == BASH
    assert type_of("python ok.py", "paper") == PYTHON


def test_an_answer_of_megabytes_is_not_read() -> None:
    """Under the published rules it is still searched."""
    code = "python train.py --lr 0.1\n" * 400_000
    assert type_of(code) is None
    assert type_of(code, "paper") == BASH
    assert not has(code, lr=0.1)
    assert has(code, "paper", lr=0.1)
