"""Draws new sequences for one chain of a structure. The folder of the output must exist.

python sample_sequences.py data/5mfe.pdb -c A -t 1.0 -n 2 --outpath=output/toy.fasta
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from molfold.fasta import write_fasta
from molfold.inverse_folding import sample_sequences
from molfold.structure import load_backbone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("pdb_file", type=Path)
    parser.add_argument("-c", "--chain", required=True)
    parser.add_argument("-t", "--temperature", type=float, required=True, help="above 0; low is conservative")
    parser.add_argument("-n", "--num_samples", type=int, required=True)
    parser.add_argument("--outpath", type=Path, required=True, help="FASTA file to write")
    parser.add_argument("--seed", type=int, default=37)
    arguments = parser.parse_args()
    if arguments.temperature <= 0 or arguments.num_samples < 1:
        parser.error("temperature and num_samples must be positive")
    if arguments.outpath.suffix != ".fasta" or not arguments.outpath.parent.is_dir():
        parser.error(f"{arguments.outpath} is no .fasta file in an existing folder")
    backbone, native = load_backbone(arguments.pdb_file, chain=arguments.chain)
    sequences = sample_sequences(backbone, arguments.temperature, arguments.num_samples, arguments.seed)
    records = [(f"sampled_{number}", sequence) for number, sequence in enumerate(sequences, start=1)]
    write_fasta(arguments.outpath, records)
    for name, sequence in records:
        recovery = sum(a == b for a, b in zip(sequence, native)) / len(native)
        print(f"{name} {sequence} recovery {recovery:.2f}")
    print(f"wrote {arguments.outpath}")


if __name__ == "__main__":
    main()
