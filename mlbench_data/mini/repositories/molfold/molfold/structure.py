"""Backbones from PDB files, and what follows from their geometry."""

from pathlib import Path

import numpy as np

ATOMS = ("N", "CA", "C")
ONE_LETTER = {
    "ALA": "A", "CYS": "C", "ASP": "D", "GLU": "E", "PHE": "F", "GLY": "G", "HIS": "H",
    "ILE": "I", "LYS": "K", "LEU": "L", "MET": "M", "ASN": "N", "PRO": "P", "GLN": "Q",
    "ARG": "R", "SER": "S", "THR": "T", "VAL": "V", "TRP": "W", "TYR": "Y",
}  # fmt: skip


def load_backbone(path: str | Path, *, chain: str) -> tuple[np.ndarray, str]:
    """Coordinates of shape (residues, 3 atoms, 3) in ångström, and the sequence of a chain."""
    places: dict[tuple[int, str], list[float]] = {}
    letters: dict[int, str] = {}
    for line in Path(path).read_text().splitlines():
        if line.startswith("ATOM") and line[21] == chain:
            residue = int(line[22:26])
            letters[residue] = ONE_LETTER[line[17:20]]
            places[residue, line[12:16].strip()] = [float(line[start : start + 8]) for start in (30, 38, 46)]
    if not letters:
        raise ValueError(f"{path} has no chain {chain!r}")
    coordinates = [[places[residue, atom] for atom in ATOMS] for residue in letters]
    return np.array(coordinates), "".join(letters.values())


def contact_map(backbone: np.ndarray, *, atom: str, cutoff: float, min_separation: int) -> np.ndarray:
    """True for residues closer than `cutoff` ångström and at least `min_separation` apart in sequence."""
    if atom not in ATOMS:
        raise ValueError(f"atom is {atom!r}; expected one of {', '.join(ATOMS)}")
    if cutoff <= 0 or min_separation < 1:
        raise ValueError(f"cutoff {cutoff}, min_separation {min_separation}: expected positive numbers")
    places = backbone[:, ATOMS.index(atom)]
    distances = np.linalg.norm(places[:, None] - places[None], axis=-1)
    index = np.arange(len(places))
    return (distances < cutoff) & (np.abs(index[:, None] - index[None]) >= min_separation)
