"""What train/doctor_gpu.py tells about the pretended card."""

import json

import torch

from train.doctor_gpu import _machine

print(json.dumps({check.name: [check.found, check.ok] for check in _machine(torch.device("cuda", 0))}))
