"""Writes embeddings of all sequences of a FASTA file, one .npy file for each.

python scripts/extract.py mf_t6_8M data/insulins.fasta my_embeddings --repr_layer 1 --include bos
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from molfold.fasta import read_fasta
from molfold.pretrained import SIZES, load_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("model", choices=list(SIZES))
    parser.add_argument("fasta_file", type=Path)
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--repr_layer", type=int, required=True, help="layer whose output is kept")
    parser.add_argument("--include", required=True, choices=["mean", "per_tok", "bos"])
    arguments = parser.parse_args()
    model = load_model(arguments.model)
    records = read_fasta(arguments.fasta_file)
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    for name, sequence in records:
        hidden = model.represent(sequence, arguments.repr_layer)
        kept = {"mean": hidden[1:].mean(axis=0), "per_tok": hidden[1:], "bos": hidden[0]}[arguments.include]
        np.save(arguments.output_dir / f"{name}.npy", kept)
        print(f"{name} {kept.shape}")
    print(f"wrote {len(records)} files to {arguments.output_dir}")


if __name__ == "__main__":
    main()
