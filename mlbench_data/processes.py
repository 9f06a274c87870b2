"""Processes that do not outlive the one that started them."""

import ctypes
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Called in a child: it is killed when its parent ends, in whatever way. Without this, a child whose
    parent was killed works on, or waits for work for ever.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
