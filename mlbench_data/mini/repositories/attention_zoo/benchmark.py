"""Times every attention module once on a small input and prints a table.

python benchmark.py --repeats 3
"""

import argparse
import time

import numpy as np

from zoo.attention.BAM import BAMBlock
from zoo.attention.CBAM import CBAMBlock
from zoo.attention.ExternalAttention import ExternalAttention
from zoo.attention.OutlookAttention import OutlookAttention
from zoo.attention.SEAttention import SEAttention

CASES = {
    "ExternalAttention": (ExternalAttention(d_model=64, S=8), (2, 49, 64)),
    "SEAttention": (SEAttention(channel=64, reduction=8), (2, 64, 7, 7)),
    "CBAMBlock": (CBAMBlock(channel=64, reduction=8, kernel_size=7), (2, 64, 7, 7)),
    "BAMBlock": (BAMBlock(channel=64, reduction=8, dia_val=2), (2, 64, 7, 7)),
    "OutlookAttention": (OutlookAttention(dim=64, num_heads=4, kernel_size=3), (2, 7, 7, 64)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    for name, (module, shape) in CASES.items():
        values = np.random.rand(*shape)
        start = time.perf_counter()
        for _ in range(arguments.repeats):
            module(values)
        print(f"{name:20s} {(time.perf_counter() - start) / arguments.repeats * 1e3:8.2f} ms")


if __name__ == "__main__":
    main()
