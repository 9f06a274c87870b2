"""Prints the most likely contacts of each sequence, from the similarity of residue embeddings.

python scripts/predict_contacts.py mf_t12_35M data/kinases.fasta --top 5
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
    parser.add_argument("--top", type=int, default=3, help="contacts for each sequence")
    arguments = parser.parse_args()
    model = load_model(arguments.model)
    for name, sequence in read_fasta(arguments.fasta_file):
        hidden = model.embed(sequence, layer=model.layers, pooling="none")
        similarity = np.triu(hidden @ hidden.T, k=6)
        best = np.argsort(similarity, axis=None)[::-1][: arguments.top]
        pairs = [divmod(int(index), len(sequence)) for index in best]
        print(name, " ".join(f"{first + 1}-{second + 1}" for first, second in pairs))


if __name__ == "__main__":
    main()
