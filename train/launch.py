"""How training was started, and that it is what the user asked for.

Launchers and accelerate fall back silently: two CPU processes become one, FSDP becomes DDP. A run that is not
the one in the configuration costs days, so it stops here.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch

from mlbench_data.bad_input import BadInput, JobFailed, Stopped

MAIN_FIRST_SECONDS = 5.0

Decision = TypeVar("Decision")


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


@contextmanager
def main_speaks_first() -> Iterator[None]:
    """Lets the main process fail first: what all of them find is then said once, since the launcher ends the
    others as soon as one has failed. What one of the others finds alone is said all the same; that they were
    asked to stop, all of them know. Runs that end as they should are disconnected.
    """
    try:
        yield
    except (BadInput, JobFailed):
        if not is_main():
            time.sleep(MAIN_FIRST_SECONDS)
        raise
    except Stopped as stopped:
        disconnect()
        if not is_main():
            time.sleep(MAIN_FIRST_SECONDS)
            raise SystemExit(stopped.exit_code) from None
        raise
    else:
        disconnect()


def disconnect() -> None:
    """Waits for all processes, and ends their connection. One that exits with it aborts now and then: the
    threads of gloo outlive the interpreter (pytorch/pytorch#179291).
    """
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def decided_by_main(decide: Callable[[], Decision]) -> Decision:
    """What the main process decides, in every process: files change while the others look. Its BadInput is
    raised in all of them. Needs TrainingArguments, which connect the processes.
    """
    decided: list[Any] = [None, None]
    if is_main():
        try:
            decided = [decide(), None]
        except BadInput as error:
            decided = [None, error]
    if torch.distributed.is_initialized():
        torch.distributed.broadcast_object_list(decided)
    decision, refused = decided
    if refused is not None:
        raise refused
    return decision


def check_launched() -> None:
    """Raises BadInput if accelerate's launcher was asked for more processes than it started, or for an FSDP
    setting with which adapters are lost. Names GPUs that stay idle.
    """
    asked = _processes_asked_of(_command_of(os.getppid()))
    if asked > processes():
        raise BadInput(
            f"accelerate was asked for {asked} processes and started {processes()}: distributed_type "
            "MULTI_CPU or NO, --cpu and use_cpu do that; use configs/accelerate/ddp.yaml, also for CPUs"
        )
    if wants_fsdp():
        _check_fsdp()
    visible = torch.cuda.device_count()
    if processes() == 1 and visible > 1:
        print(
            f"1 of {visible} visible GPUs is used; for all: accelerate launch --config_file "
            f"configs/accelerate/ddp.yaml --num_processes {visible} train/sft.py …, or fsdp2.yaml for models "
            "that need more than one"
        )


def check_precision(bfloat16: bool) -> None:
    """Raises BadInput if accelerate was told to compute in another precision than the script does."""
    wanted = "bf16" if bfloat16 else "no"
    told = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
    if told not in ("no", wanted):
        raise BadInput(
            f"accelerate's mixed_precision is {told}; set it to no: --dtype decides ({wanted} here)"
        )


def check_running(accelerator: Any) -> None:
    """Raises BadInput if the run is spread in another way than asked for."""
    running = accelerator.distributed_type.value
    wanted = "DEEPSPEED" if wants_deepspeed() else "FSDP" if wants_fsdp() else None
    if wanted and running != wanted:
        on_cpu = os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true"
        reason = "ACCELERATE_USE_CPU is set" if on_cpu else f"accelerate has no {wanted} on this device"
        raise BadInput(f"{wanted} was asked for and {running} would run: {reason}")
    if accelerator.num_processes != processes():
        raise BadInput(f"{processes()} processes were started and {accelerator.num_processes} take part")


def _check_fsdp() -> None:
    if os.environ.get("FSDP_VERSION") != "2":
        raise BadInput("fsdp_version must be 2: version 1 flattens what is trained into unnamed pieces")
    if os.environ.get("FSDP_ACTIVATION_CHECKPOINTING", "").lower() == "true":
        raise BadInput(
            "fsdp_activation_checkpointing saves adapters without tensors; set it to false and give "
            "--activation_checkpointing true"
        )
    if os.environ.get("FSDP_STATE_DICT_TYPE") != "FULL_STATE_DICT":
        raise BadInput("fsdp_state_dict_type must be FULL_STATE_DICT; others leave no adapter in checkpoints")


def _command_of(process: int) -> list[str]:
    """A process's command line; empty where the system does not show it."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def _processes_asked_of(command: list[str]) -> int:
    """The num_processes that an `accelerate launch` command line asks for; 0 if it is none."""
    words = _launcher_words(command)
    if words is None:
        return 0
    from accelerate.commands.config import config_args
    from accelerate.commands.launch import launch_command_parser

    arguments, _ = launch_command_parser().parse_known_args(words)
    if arguments.num_processes is not None:
        return int(arguments.num_processes)
    default = not arguments.cpu and Path(config_args.default_config_file).is_file()
    if arguments.config_file is None and not default:
        return 0
    return int(getattr(config_args.load_config_from_file(arguments.config_file), "num_processes", 0))


def _launcher_words(command: list[str]) -> list[str] | None:
    """What follows `accelerate launch`, however it is spelled; None for any other command line."""
    words = list(command)
    if words and Path(words[0]).name.startswith("python"):
        words = _after_python(words[1:])
    program, *rest = words or [""]
    if Path(program).name == "accelerate-launch" or program == "accelerate.commands.launch":
        return rest
    is_accelerate = Path(program).name == "accelerate" or program == "accelerate.commands.accelerate_cli"
    return rest[1:] if is_accelerate and rest[:1] == ["launch"] else None


def _after_python(words: list[str]) -> list[str]:
    """The script or module and its arguments, without the interpreter's own options."""
    while words and words[0].startswith("-"):
        if words[0] == "-m":
            return words[1:]
        words = words[2:] if words[0] in ("-W", "-X") else words[1:]
    return words
