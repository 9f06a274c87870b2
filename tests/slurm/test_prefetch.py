"""What compute nodes without a hub need: fetched whole, proven, and missed before anything is submitted."""

import json
import shutil
from pathlib import Path

import pytest

from tests.helpers import RunScript, error_line
from tests.slurm.conftest import write_sweep
from tests.slurm.hub import COMMIT, hub_of

RECIPE = "configs/train/smollm2-135m-id-task3.yaml"


@pytest.fixture
def model(models: list[str], tmp_path: Path) -> Path:
    """A model as a hub has it: more files than are needed."""
    folder = tmp_path / "hub"
    shutil.copytree(models[0], folder)
    (folder / "pytorch_model.bin").write_bytes(b"the same weights again")
    (folder / "photo.png").write_bytes(b"not needed")
    return folder


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    site = {"offline": "true"}
    return write_sweep(
        tmp_path, site, models=["owner/name"], trained_on=["raw"], shards=2, train_config=RECIPE
    )


def environment(tmp_path: Path, address: str) -> dict[str, str]:
    return {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_DISABLE_XET": "1"}


def test_a_model_of_the_hub_is_fetched_proven_and_verified_again_without_the_hub(
    model: Path, sweep: Path, tmp_path: Path, run_script: RunScript
) -> None:
    with hub_of(model) as (address, asked):
        done = run_script("slurm/prefetch.py", "--config", sweep, env=environment(tmp_path, address))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "its tokenizer loads" in done.stdout
    assert not any("photo" in path or path.endswith(".bin") for path in asked), (
        "weights once, and no pictures"
    )
    record = json.loads((tmp_path / "out" / "prefetched.json").read_text())
    assert record["models"][0]["commit"] == COMMIT
    nowhere = environment(tmp_path, "http://127.0.0.1:9")
    again = run_script("slurm/prefetch.py", "--config", sweep, "--verify", env=nowhere)
    assert again.returncode == 0, again.stderr
    plan = run_script("slurm/submit.py", "--config", sweep, "--dry_run", env=nowhere)
    assert plan.returncode == 0, plan.stderr

    weights = next((tmp_path / "cache").rglob("snapshots/*/model.safetensors")).resolve()
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0\0")
    changed = run_script("slurm/prefetch.py", "--config", sweep, "--verify", env=nowhere)
    assert changed.returncode == 1
    assert "model.safetensors: not what was fetched" in changed.stderr
    weights.unlink()
    gone = run_script("slurm/submit.py", "--config", sweep, env=nowhere)
    assert "model.safetensors is gone, and the site is offline" in error_line(gone)


def test_a_file_that_is_not_the_hubs_is_refused(
    model: Path, sweep: Path, tmp_path: Path, run_script: RunScript
) -> None:
    """A cache that was damaged before: its library looks at names only."""
    with hub_of(model) as (address, _):
        run_script("slurm/prefetch.py", "--config", sweep, env=environment(tmp_path, address), check=True)
        weights = next((tmp_path / "cache").rglob("snapshots/*/model.safetensors")).resolve()
        weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
        done = run_script("slurm/prefetch.py", "--config", sweep, env=environment(tmp_path, address))
    assert done.returncode == 1
    assert "is not the file of the hub" in done.stderr


def test_a_model_that_lacks_a_part_of_its_weights_is_refused(
    model: Path, sweep: Path, tmp_path: Path, run_script: RunScript
) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    with hub_of(model) as (address, _):
        done = run_script("slurm/prefetch.py", "--config", sweep, env=environment(tmp_path, address))
    assert done.returncode == 1
    assert "lacks model-00002-of-00002.safetensors" in done.stderr
    assert not (tmp_path / "out" / "prefetched.json").exists()


def test_without_the_hub_one_line_says_so(sweep: Path, tmp_path: Path, run_script: RunScript) -> None:
    done = run_script("slurm/prefetch.py", "--config", sweep, env=environment(tmp_path, "http://127.0.0.1:9"))
    assert done.returncode == 1
    assert "owner/name: the hub did not give it" in done.stderr.splitlines()[-1]


def test_an_offline_site_is_not_submitted_to_before_everything_is_there(
    sweep: Path, tmp_path: Path, run_script: RunScript
) -> None:
    assert "nothing was fetched for this sweep" in error_line(
        run_script("slurm/submit.py", "--config", sweep)
    )
    assert not (tmp_path / "out").exists()


def test_a_sweep_without_the_hub_needs_nothing_fetched(
    models: list[str], tmp_path: Path, run_script: RunScript
) -> None:
    config = write_sweep(
        tmp_path, {"offline": "true"}, models=models, trained_on=["raw"], train_config=RECIPE
    )
    done = run_script(
        "slurm/prefetch.py", "--config", config, env=environment(tmp_path, "http://127.0.0.1:9")
    )
    assert done.returncode == 0, done.stderr
    assert "READMEs as in its manifest" in done.stdout


def test_weights_that_are_no_safetensors_are_refused_before_anything_is_fetched(
    model: Path, sweep: Path, tmp_path: Path, run_script: RunScript
) -> None:
    """They would be fetched for hours, and then not be read."""
    (model / "model.safetensors").unlink()
    with hub_of(model) as (address, asked):
        done = run_script("slurm/prefetch.py", "--config", sweep, env=environment(tmp_path, address))
    assert "owner/name: has pytorch_model.bin and no safetensors" in error_line(done)
    assert not any("resolve" in path for path in asked)
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "out").exists()


def test_the_index_of_other_weights_is_not_minded(
    model: Path, sweep: Path, tmp_path: Path, run_script: RunScript
) -> None:
    """Llama-2 and others have both kinds, of which one is fetched."""
    index = {"weight_map": {"a": "pytorch_model-00001-of-00002.bin"}}
    (model / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with hub_of(model) as (address, _):
        done = run_script("slurm/prefetch.py", "--config", sweep, env=environment(tmp_path, address))
    assert done.returncode == 0, done.stderr


def test_a_gated_model_and_an_offline_hub_are_one_line(
    model: Path, sweep: Path, tmp_path: Path, run_script: RunScript
) -> None:
    with hub_of(model, gated=True) as (address, _):
        env = environment(tmp_path, address)
        gated = run_script("slurm/prefetch.py", "--config", sweep, env=env)
        offline = run_script("slurm/prefetch.py", "--config", sweep, env={**env, "HF_HUB_OFFLINE": "1"})
    assert "owner/name: given only to those who have accepted its terms" in error_line(gated)
    assert "HF_HUB_OFFLINE is set, and models are to be fetched" in error_line(offline)
