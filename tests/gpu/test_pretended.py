"""The pretended GPU itself."""

from tests.gpu.conftest import OnPretendedGpu


def test_autograd_runs_on_fake_tensors_of_the_card(on_pretended_gpu: OnPretendedGpu) -> None:
    found = on_pretended_gpu("tests/gpu/autograd_alone.py", capability="8.9")
    assert found == {"device": "cuda:0", "dtype": "torch.bfloat16", "card": "RTX 4090"}
