"""The pretended GPU itself."""

from tests.gpu.conftest import OnPretendedGpu


def test_autograd_runs_on_fake_tensors_of_the_card(on_pretended_gpu: OnPretendedGpu) -> None:
    found = on_pretended_gpu("tests/gpu/autograd_alone.py", capability="8.9")
    assert found == {"device": "cuda:0", "dtype": "torch.bfloat16", "card": "RTX 4090"}


def test_the_doctor_tells_about_the_card(on_pretended_gpu: OnPretendedGpu) -> None:
    found = on_pretended_gpu("tests/gpu/machine.py", capability="7.5")
    assert found["card"] == ["T4, 16.00 GiB", None]
    assert found["compute capability"] == ["7.5", None]
    assert found["shared memory of a block"] == ["65536 bytes", None]
    assert found["bfloat16"] == ["by the hardware", False]
    assert found["C compiler"][1] is True
