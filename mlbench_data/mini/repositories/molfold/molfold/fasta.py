"""Reading and writing FASTA files."""

from pathlib import Path

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"


def read_fasta(path: str | Path) -> list[tuple[str, str]]:
    """Names and sequences, in the file's order. Raises ValueError for anything but the 20 residues."""
    records: list[tuple[str, str]] = []
    for line in Path(path).read_text().splitlines():
        if line.startswith(">"):
            records.append((line[1:].split()[0], ""))
        elif line.strip():
            name, sequence = records[-1]
            records[-1] = (name, sequence + line.strip())
    for name, sequence in records:
        unknown = set(sequence) - set(RESIDUES)
        if unknown or not sequence:
            raise ValueError(f"{path}: {name} is empty or has unknown residues {sorted(unknown)}")
    return records


def write_fasta(path: str | Path, records: list[tuple[str, str]]) -> None:
    """One line for each name, one for each sequence."""
    Path(path).write_text("".join(f">{name}\n{sequence}\n" for name, sequence in records))
