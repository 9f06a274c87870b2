"""How the reference harness runs candidates: one after another, each in a fresh interpreter, unsandboxed.

Written from its description: every candidate goes into the one `temp.py` of the one checkout and is started
by bash, and the harness waits for its end. Its defects do not show here, as all candidates end well.
"""

import subprocess
import sys
from pathlib import Path


def run_serially(programs: list[str], checkout: Path, seconds: float) -> list[bool]:
    """Whether each program ended with 0 in time."""
    passed = []
    for code in programs:
        (checkout / "temp.py").write_text(code, encoding="utf-8")
        process = subprocess.Popen(
            ["bash", "-c", f"cd {checkout}; {sys.executable} temp.py"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            process.communicate(timeout=seconds)
            passed.append(process.returncode == 0)
        except subprocess.TimeoutExpired:
            process.kill()
            passed.append(False)
    return passed
