"""How training was started, and that it is what the user asked for.

Launchers and accelerate fall back silently: two CPU processes become one, FSDP becomes DDP. A run that is not
the one in the configuration costs days, so it stops here.
"""

import os
from pathlib import Path
from typing import Any

from mlbench_data.bad_input import BadInput

LAUNCHERS = ("accelerate launch", "accelerate-launch")


def processes() -> int:
    """Processes of this run, over all machines."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main() -> bool:
    """Whether this process writes the files."""
    return int(os.environ.get("RANK", "0")) == 0


def wants_deepspeed() -> bool:
    """Whether accelerate was told to use DeepSpeed."""
    return os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true"


def wants_fsdp() -> bool:
    """Whether accelerate was told to use FSDP."""
    return os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"


def check_launched() -> None:
    """Raises BadInput if accelerate's launcher was asked for more processes than it started, or for an FSDP
    setting with which adapters are lost.
    """
    asked = _processes_asked_of(_command_of(os.getppid()))
    if asked > 1 and processes() == 1:
        raise BadInput(
            f"accelerate was asked for {asked} processes and started one: its distributed_type MULTI_CPU "
            "does that; use configs/accelerate/ddp.yaml (MULTI_GPU, also for CPU processes)"
        )
    if not wants_fsdp():
        return
    if os.environ.get("FSDP_ACTIVATION_CHECKPOINTING", "").lower() == "true":
        raise BadInput(
            "fsdp_activation_checkpointing saves adapters without tensors; set it to false and give "
            "--activation_checkpointing true"
        )
    if os.environ.get("FSDP_STATE_DICT_TYPE", "FULL_STATE_DICT") != "FULL_STATE_DICT":
        raise BadInput("fsdp_state_dict_type must be FULL_STATE_DICT; others leave no adapter in checkpoints")


def check_running(accelerator: Any) -> None:
    """Raises BadInput if the run is spread in another way than asked for."""
    running = accelerator.distributed_type.value
    wanted = "DEEPSPEED" if wants_deepspeed() else "FSDP" if wants_fsdp() else None
    if wanted and running != wanted:
        raise BadInput(
            f"{wanted} was asked for and {running} would run: accelerate has no {wanted} on this device"
        )
    if accelerator.num_processes != processes():
        raise BadInput(f"{processes()} processes were started and {accelerator.num_processes} take part")


def _command_of(process: int) -> list[str]:
    """A process's command line; empty where the system does not show it."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def _processes_asked_of(command: list[str]) -> int:
    """The num_processes that an `accelerate launch` command line asks for; 0 if it is none."""
    if not any("accelerate" in word for word in command[:3]) or "launch" not in " ".join(command[:4]):
        return 0
    from accelerate.commands.config import config_args
    from accelerate.commands.launch import launch_command_parser

    words = command[next(place for place, word in enumerate(command) if "launch" in word) + 1 :]
    arguments, _ = launch_command_parser().parse_known_args(words)
    if arguments.num_processes is not None:
        return int(arguments.num_processes)
    if arguments.config_file is None and not Path(config_args.default_config_file).is_file():
        return 0
    return int(config_args.load_config_from_file(arguments.config_file).num_processes)
