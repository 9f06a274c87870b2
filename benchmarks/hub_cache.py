"""A cache as the hub's client leaves it on a cluster: the paper's three models with their own names,
tokenizers and configurations, and tiny random weights. Libraries that stay offline read nothing else.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from mlbench_data.files import write_json

CODELLAMA = "codellama/CodeLlama-7b-Instruct-hf"
DEEPSEEK = "deepseek-ai/deepseek-coder-6.7b-base"
LLAMA = "meta-llama/Llama-2-7b-hf"
NAMES = {
    "codellama-7b-instruct": CODELLAMA,
    "deepseek-coder-6.7b-base": DEEPSEEK,
    "llama-2-7b": LLAMA,
}
"""The hub's name for each of configs/models."""

TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 32,  # the smallest that the CPU build of vLLM takes
}
"""In place of the sizes of 7B weights."""

INFILLING = ["▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>"]
CHAT = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
    "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content | trim + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content | trim + ' ' + eos_token }}"
    "{% endif %}{% endfor %}"
)


def environment(cache: Path) -> dict[str, str]:
    """What a process must be told to find the models there."""
    return {"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}


def folder_of(cache: Path, hub_id: str) -> Path:
    """The files of a model, which are a model in a local folder too."""
    [folder] = (cache / f"models--{hub_id.replace('/', '--')}" / "snapshots").iterdir()
    return folder


def write_hub_cache(cache: Path, tokenizers: Path) -> Path:
    """Writes all three models to `cache`, their tokenizers from the folder `tokenizers`, in about 10 s."""
    pieces = _pieces(tokenizers / "llama.model")
    for hub_id in NAMES.values():
        folder = _snapshot(cache, hub_id)
        write_json(folder / "config.json", _config(hub_id))
        write_json(folder / "generation_config.json", _generation(hub_id))
        write_json(folder / "tokenizer_config.json", _tokenizer_config(hub_id))
        if hub_id == DEEPSEEK:
            (folder / "tokenizer.json").symlink_to(tokenizers / "deepseek-coder.json")
        else:
            more = _infilling_pieces() if hub_id == CODELLAMA else []
            (folder / "tokenizer.json").write_text(_sentencepiece([*pieces, *more]), encoding="utf-8")
            (folder / "tokenizer.model").symlink_to(tokenizers / "llama.model")
        _write_weights(folder)
    return cache


def _snapshot(cache: Path, hub_id: str) -> Path:
    """Where the files of the model's only commit lie, which `main` is."""
    repository = cache / f"models--{hub_id.replace('/', '--')}"
    commit = hashlib.sha1(hub_id.encode()).hexdigest()
    folder = repository / "snapshots" / commit
    folder.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    return folder


def _config(hub_id: str) -> dict[str, Any]:
    """The hub's config.json, but for the sizes."""
    common = {
        "architectures": ["LlamaForCausalLM"],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "model_type": "llama",
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        **TINY,
    }
    if hub_id == CODELLAMA:
        return {**common, "max_position_embeddings": 16384, "rope_theta": 1000000, "vocab_size": 32016}
    if hub_id == LLAMA:
        return {**common, "max_position_embeddings": 4096, "torch_dtype": "float16", "vocab_size": 32000}
    return {
        **common,
        "bos_token_id": 32013,
        "eos_token_id": 32014,
        "max_position_embeddings": 16384,
        "rms_norm_eps": 1e-06,
        "rope_scaling": {"factor": 4.0, "type": "linear"},
        "rope_theta": 100000,
        "vocab_size": 32256,
    }


def _generation(hub_id: str) -> dict[str, Any]:
    if hub_id == DEEPSEEK:
        return {"_from_model_config": True, "bos_token_id": 32013, "eos_token_id": 32014}
    if hub_id == CODELLAMA:
        return {"_from_model_config": True, "bos_token_id": 1, "eos_token_id": 2}
    return {
        "bos_token_id": 1,
        "do_sample": True,
        "eos_token_id": 2,
        "max_length": 4096,
        "pad_token_id": 0,
        "temperature": 0.6,
        "top_p": 0.9,
    }


def _tokenizer_config(hub_id: str) -> dict[str, Any]:
    """The hub's tokenizer_config.json. DeepSeek's names a class for SentencePiece; its pieces are bytes."""
    normalized = hub_id == DEEPSEEK
    begin, end = ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>") if normalized else ("<s>", "</s>")
    common = {
        "bos_token": _added(begin, normalized=normalized),
        "clean_up_tokenization_spaces": False,
        "eos_token": _added(end, normalized=normalized),
        "model_max_length": 16384 if normalized else 1000000000000000019884624838656,
        "pad_token": _added(end, normalized=True) if normalized else None,
        "sp_model_kwargs": {},
        "unk_token": None if normalized else _added("<unk>", normalized=False),
    }
    if hub_id == LLAMA:
        own = {"legacy": False, "padding_side": "right", "tokenizer_class": "LlamaTokenizer"}
        return {**common, **own, "add_bos_token": True, "add_eos_token": False}
    if hub_id == DEEPSEEK:
        own = {"legacy": True, "tokenizer_class": "LlamaTokenizerFast"}
        return {**common, **own, "add_bos_token": True, "add_eos_token": False}
    return {
        **common,
        "additional_special_tokens": INFILLING,
        "chat_template": CHAT,
        "eot_token": "▁<EOT>",
        "fill_token": "<FILL_ME>",
        "legacy": None,
        "middle_token": "▁<MID>",
        "prefix_token": "▁<PRE>",
        "suffix_first": False,
        "suffix_token": "▁<SUF>",
        "tokenizer_class": "CodeLlamaTokenizer",
        "use_default_system_prompt": False,
    }


def _added(content: str, *, normalized: bool) -> dict[str, Any]:
    flags = {"lstrip": False, "normalized": normalized, "rstrip": False, "single_word": False}
    return {"__type": "AddedToken", "content": content, **flags}


def _pieces(model: Path) -> list[str]:
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor(model_file=str(model))
    return [processor.id_to_piece(number) for number in range(processor.get_piece_size())]


def _infilling_pieces() -> list[str]:
    """CodeLlama's 16 pieces after Llama-2's 32,000."""
    parts = ["▁<SU", "▁<SUF", "▁<PRE", "▁<M", "▁<MID", "▁<E", "▁<EOT"]
    whole = ["▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"]
    return [*parts, *whole, *(f"<unused{number}>" for number in range(16 - len(parts) - len(whole)))]


def _sentencepiece(pieces: list[str]) -> str:
    """The tokenizer.json that the hub has beside a tokenizer.model of Llama's kind."""
    from tokenizers import AddedToken, Tokenizer, decoders, normalizers, processors
    from tokenizers.models import BPE
    from transformers.tokenization_utils_base import generate_merges

    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    merges = generate_merges(dict(vocabulary))
    made = Tokenizer(BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    special = ["<unk>", "<s>", "</s>", *(piece for piece in INFILLING if piece in vocabulary)]
    made.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s>:1 $B:1", [("<s>", 1)])
    return str(made.to_str())


def _write_weights(folder: Path) -> None:
    """Random weights as config.json describes them, in the dtype that it names."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig, LlamaForCausalLM

    settings = json.loads((folder / "config.json").read_text())
    config = AutoConfig.from_pretrained(folder)
    config.initializer_range = 0.1  # with less, all tokens are about as likely, and engines take others
    torch.manual_seed(0)
    network = LlamaForCausalLM(config).to(getattr(torch, settings["torch_dtype"]))
    tensors = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
