"""Chance in packs: dropout before LoRA and noise on embeddings are those of separate rows on average."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
from transformers.integrations.neftune import neftune_post_forward_hook

from mlbench_data.models import Model
from tests.train.test_packs import MOST, examples_of, trainer_of
from train import prefix_attention
from train.config import NOT_IDENTITY
from train.groups import make_groups, single_groups
from train.network import Lora, add_lora
from train.noise import EmbeddingNoise
from train.packs import Pack, collate
from train.prefix_attention import Layout

DRAWS = 40


@pytest.fixture(scope="module")
def sides(tokenizer_model: Model) -> tuple[Pack, Pack]:
    """Three rows of one README, sharing it and each by itself."""
    rows = examples_of(tokenizer_model, 1, 40, 256)
    alike = [row for row in rows if row.prompt.row.repository == rows[0].prompt.row.repository][:3]
    [group] = make_groups(alike, 3, MOST, random.Random(0))
    assert group.prefix > 50
    return Pack([group]), Pack(single_groups(alike, random.Random(0)))


def lora_network(model: Model, dropout: float) -> PeftModel:
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(
        model.location, dtype=torch.float32, attn_implementation=prefix_attention.NAME
    )
    network = add_lora(base, Lora(4, 8, dropout))
    for name, parameter in network.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return network


def batch_of(pack: Pack) -> dict[str, Any]:
    batch = collate([pack])
    return batch | {"shift_labels": batch["labels"]}


def draws(network: PeftModel, pack: Pack, folder: Path, count: int) -> torch.Tensor:
    """For each draw of masks the loss, and the gradient in eight directions."""
    trainer = trainer_of(network, [pack], folder)
    answers = sum(len(row.answer_ids) for row in pack.examples)
    learned = [parameter for parameter in network.parameters() if parameter.requires_grad]
    ways = torch.randn(8, sum(map(torch.numel, learned)), generator=torch.Generator().manual_seed(1))
    network.train()
    found = []
    for seed in range(count):
        torch.manual_seed(seed)
        loss = trainer.compute_loss(network, batch_of(pack), num_items_in_batch=answers)
        gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, learned)])
        found.append(torch.cat([loss.detach()[None], ways @ gradient]))
    return torch.stack(found).double()


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_dropout_is_that_of_separate_sequences_on_average_only(
    dropout: float, sides: tuple[Pack, Pack], tokenizer_model: Model, tmp_path: Path
) -> None:
    """Without dropout one step is exact. With it the rows of a README share the mask on its tokens: a single
    step differs, and the mean over many masks agrees within four standard errors.
    """
    network = lora_network(tokenizer_model, dropout)
    shared, separate = (draws(network, pack, tmp_path, DRAWS if dropout else 1) for pack in sides)
    difference = (shared.mean(0) - separate.mean(0)).abs()
    if not dropout:
        assert (difference <= 1e-5 * separate.abs().max()).all()
        return
    error = ((shared.var(0) + separate.var(0)) / DRAWS).sqrt()
    assert (difference <= 4 * error).all(), difference / error
    assert (error <= 0.5 * separate.mean(0).abs().max()).all()  # close enough to notice a wrong mean
    assert ((shared - separate)[0].abs() > 1e-3 * separate[0].abs()).any()


def test_noise_is_as_large_as_each_rows_own_length_says() -> None:
    """Two groups and a lone row in one pack: a bound for every token, which its noise comes near."""
    layout = Layout(((30, (10, 50)), (0, (16,)), (8, (8,))))
    embedding = torch.nn.Embedding(4, 64)
    torch.nn.init.zeros_(embedding.weight)
    noise_on(embedding, 5.0).expect(layout, torch.device("cpu"))
    found = torch.stack([embedding(torch.zeros(1, 122, dtype=torch.long))[0] for _ in range(50)])
    lengths = [60.0] * 30 + [40.0] * 10 + [80.0] * 50 + [16.0] * 16 + [16.0] * 16
    bounds = 5 / (torch.tensor(lengths) * 64).sqrt()
    most = found.abs().amax((0, 2))
    assert (most <= bounds).all()
    assert (most >= 0.99 * bounds).all()


def noise_on(embedding: torch.nn.Embedding, alpha: float) -> EmbeddingNoise:
    class Network:
        def get_input_embeddings(self) -> torch.nn.Embedding:
            return embedding

    return EmbeddingNoise(Network(), alpha)


def test_noise_on_a_lone_row_is_that_of_transformers() -> None:
    """Whose own would be half as large for a row in a pack of four."""
    ours, theirs = torch.nn.Embedding(4, 64), torch.nn.Embedding(4, 64)
    theirs.load_state_dict(ours.state_dict())
    theirs.neftune_noise_alpha = 5.0  # type: ignore[assignment]
    theirs.register_forward_hook(neftune_post_forward_hook)
    noise_on(ours, 5.0).expect(Layout(((0, (20,)),)), torch.device("cpu"))
    ids = torch.zeros(1, 20, dtype=torch.long)
    results = []
    for embedding in (ours, theirs):
        torch.manual_seed(0)
        results.append(embedding(ids))
    torch.testing.assert_close(*results)


def test_noise_is_there_in_training_and_not_in_evaluation(
    sides: tuple[Pack, Pack], tokenizer_model: Model, tmp_path: Path
) -> None:
    """And it makes another run: a folder with results of the same without it is refused."""
    assert "neftune" not in NOT_IDENTITY
    network = lora_network(tokenizer_model, 0.0)
    plain = trainer_of(network, [sides[0]], tmp_path).evaluate()["eval_loss"]
    noisy = trainer_of(network, [sides[0]], tmp_path, neftune=50.0)
    assert noisy.evaluate()["eval_loss"] == pytest.approx(plain, rel=1e-6)
    inputs = batch_of(sides[0])
    answers = sum(len(row.answer_ids) for row in sides[0].examples)
    network.train()
    loss = noisy.compute_loss(network, inputs, num_items_in_batch=answers)
    assert abs(loss.item() - plain) > 1e-3
