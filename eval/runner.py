"""From the options to what runs candidates: checkouts, environments, limits and the sandbox."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from eval.checkouts import find_checkouts
from eval.config import EvalConfig
from eval.environments import DEFAULT, MOST_SECONDS, Environment, read_environments
from eval.execution import Runner
from eval.sandbox.apptainer import Apptainer
from eval.sandbox.bubblewrap import Bubblewrap
from eval.sandbox.container import Container
from eval.sandbox.interface import Limits, Sandbox
from eval.sandbox.unsandboxed import Unsandboxed
from mlbench_data.bad_input import BadInput
from mlbench_data.benchmark import Benchmark
from mlbench_data.files import PROJECT_ROOT
from mlbench_data.rows import Row

MINI_REPOSITORIES = PROJECT_ROOT / "mlbench_data" / "mini" / "repositories"
LEAST_MEMORY = 32 << 20
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30}


def runner_of(config: EvalConfig, benchmark: Benchmark | None, rows: list[Row]) -> Runner:
    """All that runs a benchmark's candidates, as configured. Raises BadInput."""
    if config.repositories is not None:
        repositories = Path(config.repositories).resolve()
    elif benchmark is not None and benchmark.manifest["source"] == "mini":
        repositories = MINI_REPOSITORIES
    else:
        raise BadInput(
            "running candidates needs the repositories: give --repositories DIR with checkouts as "
            "DIR/REPOSITORY, or --execute false to only check them"
        )
    if not repositories.is_dir():
        raise BadInput(f"--repositories {repositories}: no such folder; expected checkouts as DIR/REPOSITORY")
    limits = limits_of(config)
    environments = read_environments(config.environments)
    used = {row.repository: environments.get(row.repository.lower(), DEFAULT) for row in rows}
    sandbox = sandbox_of(config, used)
    runner = Runner(
        sandbox=sandbox,
        limits=limits,
        repositories=repositories,
        checkouts=find_checkouts(repositories, rows, any_commit=config.any_commit),
        python=python_of(config, sandbox),
        workers=config.workers,
        environments=environments,
    )
    for warning in warnings_of(runner, rows):
        print(f"WARNING: {warning}", file=sys.stderr)
    return runner


def limits_of(config: EvalConfig) -> Limits:
    """What one candidate may use. Raises BadInput."""
    if not 0 < config.timeout < MOST_SECONDS:
        raise BadInput(f"--timeout {config.timeout:g}: must be more than 0 seconds, and less than a year")
    if config.workers < 1:
        raise BadInput(f"--workers {config.workers}: must be at least 1")
    if not 0.01 <= config.cores <= 10_000:
        raise BadInput(f"--cores {config.cores:g}: must be between 0.01 and 10000")
    return Limits(seconds=config.timeout, memory=parse_memory(config.memory), cores=config.cores)


def warnings_of(runner: Runner, rows: list[Row]) -> Iterator[str]:
    """What is missing, said before hours of running in which it counts as infrastructure."""
    names = {row.repository.lower() for row in rows}
    for name in runner.environments.keys() - names:
        yield f"environments: no row is about {name}; the rows are about {', '.join(sorted(names))}"
    for row in {row.repository: row for row in rows}.values():
        if runner.checkouts[row.repository] is None:
            yield f"{runner.repositories / row.repository}: no such checkout; its candidates cannot be run"
        if runner.interpreter(runner.environment(row)) is None:
            python = runner.environment(row).python
            yield f"environments: {row.repository}: no program {python}; its candidates cannot be run"


def parse_memory(text: str) -> int:
    """Bytes of a size such as 2GiB, 512MiB, 1.5GB or 1000000. Raises BadInput."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?|)B?", text.strip().upper())
    if not found or not float(found[1]):
        raise BadInput(f"--memory {text}: not a size; expected a number with KiB, MiB or GiB, such as 2GiB")
    size = int(float(found[1]) * _UNITS[found[2]])
    if not LEAST_MEMORY <= size < 1 << 62:
        raise BadInput(f"--memory {text}: no program starts in that; give 32MiB or more")
    return size


def python_of(config: EvalConfig, sandbox: Sandbox) -> Path | None:
    """What python means where an environment says nothing else; None if all have an image of their own."""
    if config.sandbox != "bubblewrap" and config.image is None:
        return None
    python = sandbox.find_python(config.python)
    if python is None:
        what = f"{config.python or 'python'}: no such program{f' in {config.image}' if config.image else ''}"
        raise BadInput(f"--python {what}; give the path of a python interpreter")
    return python


def sandbox_of(config: EvalConfig, used: dict[str, Environment]) -> Sandbox:
    """The sandbox that was asked for, for repositories with these environments."""
    images = {name: environment.image for name, environment in used.items() if environment.image is not None}
    if config.sandbox == "bubblewrap":
        return _bubblewrap(config, images)
    if config.allow_unsandboxed:
        raise BadInput(f"--allow_unsandboxed with --sandbox {config.sandbox}: only containers have the image")
    without = sorted(used.keys() - images.keys())
    if config.image is None and without:
        raise BadInput(
            f"--sandbox {config.sandbox} needs an image: give --image NAME, or image: NAME of {without[0]} "
            "in --environments"
        )
    if config.image is None and config.python is not None:
        raise BadInput(f"--python {config.python}: give --image too, whose interpreter it is")
    if config.sandbox == "apptainer":
        return Apptainer(config.image, sorted(images.values()))
    return Container(config.sandbox, config.image, sorted(images.values()))


def _bubblewrap(config: EvalConfig, images: dict[str, str]) -> Sandbox:
    """Bubblewrap; where it does not work and the user allows that, no sandbox."""
    if config.image is not None:
        raise BadInput(f"--image {config.image}: bubblewrap has no images; give --sandbox docker or another")
    if images:
        name, image = next(iter(images.items()))
        raise BadInput(
            f"{config.environments}: {name}: image is {image}, and bubblewrap has no images; "
            "give --sandbox docker or another"
        )
    try:
        return Bubblewrap(config.preload)
    except BadInput as error:
        if not config.allow_unsandboxed:
            raise
        print(f"WARNING: {error}\nWARNING: candidates run without a sandbox", file=sys.stderr)
        return Unsandboxed()
