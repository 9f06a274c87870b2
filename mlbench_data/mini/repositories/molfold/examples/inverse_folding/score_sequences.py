"""Prints the mean log likelihood of given sequences for one chain of a structure.

python score_sequences.py data/5mfe.pdb my_sequences.fasta --chain A
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from molfold.fasta import read_fasta
from molfold.inverse_folding import score_sequence
from molfold.structure import load_backbone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("pdb_file", type=Path)
    parser.add_argument("fasta_file", type=Path)
    parser.add_argument("--chain", required=True)
    arguments = parser.parse_args()
    backbone, native = load_backbone(arguments.pdb_file, chain=arguments.chain)
    print(f"native {score_sequence(backbone, native):.4f}")
    for name, sequence in read_fasta(arguments.fasta_file):
        print(f"{name} {score_sequence(backbone, sequence):.4f}")


if __name__ == "__main__":
    main()
