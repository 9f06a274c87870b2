"""Sampling from a server: a real vLLM on loopback, and a proxy before it that fails in every way."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infer.config import GenerateConfig, check_config
from infer.engines.interface import Usage
from infer.engines.openai_engine import _is_sound, _usage
from mlbench_data.bad_input import BadInput
from mlbench_data.models import Model
from mlbench_data.sources import default_benchmark
from tests.helpers import RunScript, error_line, read_lines, skip_or_fail
from tests.infer.proxy import Proxy, running

pytestmark = pytest.mark.slow

KEY = "sk-never-to-be-written-anywhere"
SERVED = "tiny"


@pytest.fixture(scope="module")
def server(tokenizer_model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real vLLM server with the tiny model; its address without /v1."""
    if importlib.util.find_spec("vllm") is None:
        skip_or_fail("vllm is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # `vllm serve` of the CPU build asks for the version of a package `vllm`, which is not its own name.
    command = [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        tokenizer_model.location,
    ]
    settings = ["--served-model-name", SERVED, "--dtype", "float32", "--enforce-eager"]
    settings += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "4096"]
    settings += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", "4096"]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [*command, *settings], env=environment, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def wait_for(url: str, process: subprocess.Popen, log: Path, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(log.read_text()[-3000:])


@pytest.fixture
def proxy(server: str) -> Iterator[Proxy]:
    with running(Proxy(server)) as found:
        yield found


def ask(url: str, model: Model, out: Path, *more: object) -> list[object]:
    short = ["--max_new_tokens", 8, "--n", 2, "--limit", 4, "--retries", 3, "--timeout", 20]
    asked = ["--base_url", url, "--model", SERVED, "--tokenizer", model.location, "--task", 3]
    return ["infer/generate.py", *asked, *short, "--out", out, *more]


WITH_KEY = {"OPENAI_API_KEY": KEY}


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_server_answers_every_row(
    api: str, server: str, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    out = tmp_path / "c.jsonl"
    prices = ["--prices", 1, 2]
    command = ask(f"{server}/v1", tokenizer_model, out, "--api", api, *prices)
    run_script(*command, check=True, env=WITH_KEY)
    rows = default_benchmark().rows("full")[:4]
    lines = read_lines(out)
    assert [(line["github_id"], line["id"]) for line in lines] == [tuple(row.key) for row in rows]
    assert all(len(line["raw"]) == 2 and line["raw"][0] != line["raw"][1] for line in lines)
    manifest = json.loads((tmp_path / "c.manifest.json").read_text())
    cost = manifest["cost"]
    assert cost["generated_tokens"] > 0
    dollars = (cost["prompt_tokens"] * 1 + cost["generated_tokens"] * 2) / 1e6
    assert manifest["dollars"] == pytest.approx(dollars, abs=1e-6)
    assert manifest["finished"] is True


def test_the_tokens_sent_are_those_of_the_other_engines(
    server: str, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    """Greedy answers through the completions API are the transformers engine's, by the same prompts."""
    greedy = ["--api", "completions", "--temperature", 0]
    served = ask(f"{server}/v1", tokenizer_model, tmp_path / "served.jsonl", *greedy)
    run_script(*served, check=True)
    local = ["--model", tokenizer_model.location, "--task", 3, "--limit", 4, "--max_new_tokens", 8]
    local += ["--n", 2, "--temperature", 0, "--out", tmp_path / "local.jsonl"]
    run_script("infer/generate.py", *local, check=True)
    raw = [[line["raw"] for line in read_lines(tmp_path / f"{name}.jsonl")] for name in ("served", "local")]
    assert raw[0] == raw[1]


@pytest.mark.parametrize("fault", ["429", "500", "hang", "cut", "malformed", "other"])
def test_what_passes_is_tried_again(
    fault: str, proxy: Proxy, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    proxy.faults = [fault, "ok", fault, fault]
    hasty = ["--timeout", 3] if fault == "hang" else []
    command = ask(proxy.url, tokenizer_model, tmp_path / "c.jsonl", "--concurrency", 2, *hasty)
    run_script(*command, check=True, env=WITH_KEY)
    assert not proxy.faults
    assert all(len(line["raw"]) == 2 for line in read_lines(tmp_path / "c.jsonl"))


def test_a_row_that_fails_for_good_is_recorded_and_asked_again_next_time(
    proxy: Proxy, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    proxy.faults = ["ok", "500", "500"]
    out = tmp_path / "c.jsonl"
    command = ask(proxy.url, tokenizer_model, out, "--concurrency", 1, "--retries", 1)
    done = run_script(*command, env=WITH_KEY)
    assert done.returncode == 1
    assert "1 rows could not be sampled" in done.stderr
    assert "run the same command again" in done.stderr
    lines = read_lines(out)
    assert ["error" in line for line in lines] == [False, True, False, False]
    before = len(proxy.seen)
    run_script(*command, check=True, env=WITH_KEY)
    assert len(proxy.seen) == before + 1
    again = read_lines(out)
    assert [again[place] for place in (0, 2, 3)] == [lines[place] for place in (0, 2, 3)]
    assert len(again[1]["raw"]) == 2


def test_the_key_is_sent_and_never_written(
    proxy: Proxy, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    """Servers repeat the key in what they say."""
    proxy.faults = ["500"] * 2
    command = ask(proxy.url, tokenizer_model, tmp_path / "c.jsonl", "--concurrency", 1, "--retries", 1)
    done = run_script(*command, env=WITH_KEY)
    assert done.returncode == 1
    assert proxy.keys == {f"Bearer {KEY}"}
    written = [path.read_text() for path in tmp_path.iterdir()]
    assert not any(KEY in text for text in [done.stdout, done.stderr, *written])
    assert any("no, Bearer ***" in text for text in written)


def test_a_refused_key_stops_the_run(
    proxy: Proxy, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    proxy.faults = ["401"] * 9
    done = run_script(*ask(proxy.url, tokenizer_model, tmp_path / "c.jsonl"), env=WITH_KEY)
    assert done.returncode == 2
    assert f"{proxy.url}: refused the key (401); set OPENAI_API_KEY in the environment" in done.stderr
    assert KEY not in done.stdout + done.stderr


@pytest.mark.parametrize("lacking", ["n", "seed", "max_tokens", "one"])
def test_what_a_server_lacks_is_done_without(
    lacking: str, proxy: Proxy, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    proxy.always = {lacking if lacking == "one" else f"no {lacking}"}
    command = ask(proxy.url, tokenizer_model, tmp_path / "c.jsonl", "--concurrency", 4)
    run_script(*command, check=True, env=WITH_KEY)
    lines = read_lines(tmp_path / "c.jsonl")
    assert all(len(line["raw"]) == 2 for line in lines)
    if lacking == "n":
        assert [values.get("n") for values in proxy.seen].count(None) == 8
    if lacking == "max_tokens":
        assert proxy.seen[-1]["max_completion_tokens"] == 8


@pytest.mark.parametrize(
    ("api", "choice", "sound"),
    [
        ("chat", {"message": {"content": "a"}}, True),
        ("chat", {"message": {"content": None}}, True),
        ("chat", {"message": {"content": ["a"]}}, False),
        ("chat", {"message": "a"}, False),
        ("chat", {"text": "a"}, False),
        ("completions", {"text": "a"}, True),
        ("completions", {"text": 5}, False),
        ("completions", {"message": {"content": "a"}}, False),
    ],
)
def test_a_reply_of_another_kind_is_noticed(api: str, choice: dict[str, Any], sound: bool) -> None:
    assert _is_sound(replied({"choices": [choice]}), api) is sound


@pytest.mark.parametrize("choices", [None, [], "text", 5])
def test_a_reply_without_choices_is_noticed(choices: Any) -> None:
    assert not _is_sound(replied({"choices": choices}), "chat")


def test_counts_that_are_none_are_left_out() -> None:
    assert _usage(replied({"usage": {"prompt_tokens": "5", "completion_tokens": 3}})) == Usage(0, 0, 3)


def replied(values: Any) -> Any:
    """JSON as the client's objects hold it."""
    return json.loads(json.dumps(values), object_hook=lambda item: SimpleNamespace(**item))


@pytest.mark.parametrize("base_url", ["http://[::1/v1", "http://localhost:99999/v1", "ftp://a", "localhost"])
def test_an_address_that_is_none_is_refused(base_url: str) -> None:
    with pytest.raises(BadInput, match="base_url is"):
        check_config(GenerateConfig(base_url=base_url, tokenizer="smollm2-135m"))


def test_wrong_addresses_and_names_are_one_line(
    server: str, tokenizer_model: Model, run_script: RunScript, tmp_path: Path
) -> None:
    down = run_script(*ask("http://127.0.0.1:9/v1", tokenizer_model, tmp_path / "a.jsonl"))
    assert down.returncode == 1
    assert "no server answers there" in down.stderr
    assert "Traceback" not in down.stderr
    command = ask(f"{server}/v1", tokenizer_model, tmp_path / "b.jsonl")
    other = run_script(*[item if item != SERVED else "gpt-none" for item in command])
    assert f"serves no model 'gpt-none'; --model is one of {SERVED}" in other.stderr
    assert other.returncode == 2
    adapter = run_script(*command, "--adapter", "nowhere")
    assert "adapter" in error_line(adapter)
