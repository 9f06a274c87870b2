"""Whether the code is still that which a sweep was submitted with: two versions make no one table.

python slurm/fingerprint.py EXPECTED
"""

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("mlbench_data", "train", "infer", "eval")
ENDINGS = {".py", ".yaml", ".json", ".md", ".txt", ".jinja", ".js"}


def fingerprint() -> str:
    """A hash of all code that computes; what recipes say, adapters record themselves."""
    digest = hashlib.sha256()
    files = (path for part in PARTS for path in (ROOT / part).rglob("*") if path.suffix in ENDINGS)
    for path in sorted(path for path in files if path.is_file() and "__pycache__" not in path.parts):
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    found, [_, expected] = fingerprint(), sys.argv
    if found != expected:
        print(
            f"error: {ROOT} has changed since this job was submitted (code {expected}, now {found}); "
            "bring it back, or submit again with --changed_code",
            file=sys.stderr,
        )
        raise SystemExit(2)
