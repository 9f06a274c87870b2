"""The settings of a training run: the whole command line of train/sft.py."""

import importlib.util
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from mlbench_data.bad_input import BadInput
from mlbench_data.budget import Policy
from mlbench_data.quantization import Quantization


@dataclass(frozen=True)
class TrainConfig:
    """What to train on, how, and where to."""

    benchmark: str = "mini"
    """mini (embedded) or a folder made by mlbench_data/build.py."""
    split: Literal["id_train", "ood_train"] = "id_train"
    """Training rows of the test repositories (id_train) or of other repositories (ood_train)."""
    task: Literal[1, 2, 3] = 3
    """What the model reads: 1 raw README, 2 BM25 window, 3 oracle segment."""
    model: str = "smollm2-135m"
    """A name of configs/models, a folder with weights, or a hub id."""
    output_dir: str = "runs/sft/smollm2-135m-id-task3"
    """Where the adapter, checkpoints and logs go; give it to infer/generate.py as --adapter."""
    prompt_template: str | None = None
    """A prompt template file; the project's own if not given."""
    answer_tokens: int = 256
    """Tokens kept free for the answer; sample with the same number to cut READMEs alike."""
    budget: Policy = "readme"
    """What goes if a prompt is too long: readme, from the README's end; paper, whatever comes last."""
    windows: list[int] = field(default_factory=lambda: [10, 1, 1000])
    """Task 2: sentences in a window, sentences from one window's start to the next, most sentences read."""
    max_rows: int | None = None
    """Use the first rows of the split only; all if not given."""
    eval_rows: int = 16
    """The split's last rows, kept out of training to measure evaluation loss."""
    epochs: float = 1.0
    """Passes over the training rows."""
    max_steps: int | None = None
    """Stop after this many optimizer steps, whatever the epochs."""
    prefixes_per_step: int = 8
    """How many different READMEs (windows, segments in tasks 2 and 3) one optimizer step mixes: with 8, none
    has more than an eighth of its rows. The rows of each are computed together."""
    batch_size: int = 4
    """Most rows a device in one forward pass."""
    group_size: int | None = None
    """Most rows of one forward pass that share a prefix: the more, the fewer tokens. If not given,
    batch_size; with gradient_accumulation, a step's rows divided by prefixes_per_step."""
    pack_tokens: int = 16384
    """Most tokens computed in one forward pass (a longer row goes alone): lower it if memory runs out."""
    prefix_sharing: bool = True
    """Compute what prompts begin with once for all rows of a group; false computes it for every row."""
    mixing: Literal["spread", "shuffled"] = "spread"
    """Order of the groups: each repository's evenly over the epoch, or by chance alone."""
    gradient_accumulation: int | None = None
    """Forward passes of each device in one optimizer step. If not given, as many as prefixes_per_step groups
    of group_size rows need: the same rows a step, whatever the number of devices."""
    learning_rate: float = 2e-4
    """Peak learning rate."""
    warmup: float = 0.1
    """Share of the steps over which the learning rate rises."""
    scheduler: Literal["cosine", "linear", "constant_with_warmup"] = "cosine"
    """How the learning rate falls after that."""
    weight_decay: float = 0.0
    """AdamW weight decay."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this norm."""
    neftune: float = 0.0
    """Noise on the embeddings while training (NEFTune), by each row's own length; 5 is usual, 0 is none. Rows
    that share a prefix share its noise."""
    method: Literal["lora", "full"] = "lora"
    """Train LoRA matrices, or all weights."""
    quantization: Quantization = "none"
    """Keep the frozen weights in 4 or 8 bits (QLoRA), by bitsandbytes; with lora only."""
    lora_rank: int = 16
    """Rank of the LoRA matrices."""
    lora_alpha: int = 32
    """LoRA scale: updates are multiplied by alpha / rank."""
    lora_dropout: float = 0.0
    """Dropout before the LoRA matrices. Without it, rows that share a prefix have the gradients of separate
    sequences; with it they share a mask there, which is right on average only."""
    lora_targets: list[str] | None = None
    """Names of the layers that get LoRA matrices; those of the model's card if not given."""
    rslora: bool = False
    """Scale by alpha / sqrt(rank) instead, which keeps high ranks learning."""
    dora: bool = False
    """Learn the weights' magnitudes as well (DoRA): closer to full fine-tuning, slower."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Weights and arithmetic; auto is bfloat16 on a GPU and float32 on a CPU, whose bfloat16 is slow."""
    activation_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, a third more time."""
    save_steps: int = 10
    """Steps between checkpoints."""
    eval_steps: int = 10
    """Steps between evaluations."""
    eval_generate_steps: int | None = None
    """Steps between samplings of rows kept out, which log pass@1; not at all if not given. The model is
    loaded once more for it, beside the one in training, by the transformers engine."""
    eval_generate_rows: int = 16
    """How many of the rows kept out are sampled, one greedy answer each."""
    eval_repositories: str | None = None
    """Checkouts as DIR/REPOSITORY, in which sampled answers are run; MiniBench has its own. Without them
    pass@1 counts the answers that pass the checks."""
    keep_best: Literal["none", "eval_loss", "pass@1"] = "none"
    """Save at the end what was trained when this was best; none saves what the last step left."""
    patience: int | None = None
    """End training after so many evaluations of keep_best without a better one."""
    logging_steps: int = 1
    """Steps between log lines."""
    wandb: bool = False
    """Log to Weights & Biases as well, which must be installed and signed in."""
    resume: bool = True
    """Continue from the last checkpoint in output_dir; false starts over."""
    dry_run: bool = False
    """Print model, rows, tokens, steps and memory, and write nothing."""
    trust_remote_code: bool = False
    """Allow the model's own python code to run."""
    seed: int = 0
    """Seeds LoRA's start and the order of rows."""


@dataclass(frozen=True)
class StepSize:
    """What an optimizer step consists of: the most rows that share a prefix in one forward pass, and the
    forward passes of each device.
    """

    group_size: int
    accumulation: int


def step_size(config: TrainConfig, processes: int) -> StepSize:
    """What a configuration says, or what follows from prefixes_per_step where it leaves that open."""
    most, prefixes = config.batch_size, config.prefixes_per_step
    if config.gradient_accumulation is None:
        group = min(config.group_size or most, most)
        return StepSize(group, math.ceil(prefixes * group / (most * processes)))
    step = most * config.gradient_accumulation * processes
    group = config.group_size or max(step // prefixes, 1)
    return StepSize(min(group, most), config.gradient_accumulation)


NOT_IDENTITY = (
    "output_dir",
    "resume",
    "dry_run",
    "save_steps",
    "eval_steps",
    "logging_steps",
    "benchmark",
    "wandb",
    "eval_generate_steps",
    "eval_generate_rows",
    "eval_repositories",
    "keep_best",
    "patience",
)
"""Where results go and how often: none of these changes what is learned, unless the best is kept."""

DECIDE_THE_BEST = ("keep_best", "patience", "eval_steps", "eval_generate_steps", "eval_generate_rows")
"""What else changes the result if not the last step's is saved."""

_POSITIVE = (
    "answer_tokens",
    "prefixes_per_step",
    "batch_size",
    "group_size",
    "pack_tokens",
    "gradient_accumulation",
    "learning_rate",
    "lora_rank",
    "lora_alpha",
    "epochs",
    "max_steps",
    "max_rows",
    "max_grad_norm",
    "save_steps",
    "eval_steps",
    "eval_generate_steps",
    "eval_generate_rows",
    "patience",
    "logging_steps",
)


def check_config(config: TrainConfig) -> None:
    """Raises BadInput for values that cannot be meant."""
    for name in _POSITIVE:
        value: Any = getattr(config, name)
        if value is not None and not 0 < value < float("inf"):
            raise BadInput(f"{name} is {value}; expected a number above 0")
    if not 0 <= config.seed < 2**32 or not 0 <= config.lora_dropout < 1:
        raise BadInput("seed must be from 0 to 2**32 - 1, and lora_dropout 0 or more and less than 1")
    for name in ("weight_decay", "neftune"):
        if not 0 <= getattr(config, name) < float("inf"):
            raise BadInput(f"{name} is {getattr(config, name)}; expected 0 or more")
    if config.lora_targets == []:
        raise BadInput("lora_targets is empty; name layers, or leave it out for those of the model's card")
    if config.eval_rows < 0 or not 0 <= config.warmup <= 1:
        raise BadInput("eval_rows must be 0 or more, and warmup a share from 0 to 1")
    _check_evaluation(config)
    if config.wandb and importlib.util.find_spec("wandb") is None:
        raise BadInput("wandb is true and the package wandb is not installed; pip install wandb")
    if config.method == "full" and config.quantization != "none":
        raise BadInput(f"quantization is {config.quantization}: quantized weights are not trained; use lora")
    if config.method == "full" and (config.rslora or config.dora or config.lora_targets):
        raise BadInput("rslora, dora and lora_targets go with method lora")
    if config.dora and config.quantization == "int8":
        raise BadInput("dora needs the weights' norms, which int8 does not give; use nf4 or none")


def _check_evaluation(config: TrainConfig) -> None:
    """Raises BadInput for evaluations that nothing could be found out from."""
    if config.eval_generate_steps is not None and config.method == "full":
        raise BadInput("eval_generate_steps goes with method lora: a whole model would be saved each time")
    if config.eval_generate_steps is not None and config.eval_rows < 1:
        raise BadInput("eval_generate_steps samples rows kept out, and eval_rows is 0; keep some")
    if config.keep_best == "pass@1" and config.eval_generate_steps is None:
        raise BadInput("keep_best is pass@1, which nothing measures; give eval_generate_steps")
    if config.keep_best == "eval_loss" and config.eval_rows < 1:
        raise BadInput("keep_best is eval_loss, and eval_rows is 0; keep some rows out")
    if config.patience is not None and config.keep_best == "none":
        raise BadInput("patience waits for a better keep_best, which is none; set it to eval_loss or pass@1")
