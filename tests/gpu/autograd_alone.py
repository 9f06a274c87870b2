"""A linear layer with its backward pass on fake tensors of the pretended card."""

import json

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

with FakeTensorMode():
    layer = torch.nn.Linear(8, 4, device="cuda", dtype=torch.bfloat16)
    layer(torch.ones(2, 8, device="cuda", dtype=torch.bfloat16)).float().sum().backward()
    gradient = layer.weight.grad
assert gradient is not None
card = torch.cuda.get_device_properties(0)
print(json.dumps({"device": str(gradient.device), "dtype": str(gradient.dtype), "card": card.name}))
