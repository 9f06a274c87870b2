"""Which system calls programs may not make: a filter in the kernel's own instructions (seccomp).

Refused is what no machine-learning program needs and what has opened sandboxes before: namespaces, mounts,
other processes' memory, kernel modules, keys, BPF, io_uring, the clock. Refused calls fail with EPERM; calls
of another architecture, and `clone3`, whose flags a filter cannot read, with ENOSYS, on which libraries fall
back.
"""

import errno
import os
import struct

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets into struct seccomp_data
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NEW_NAMESPACES = 0x7E020000
_X32 = 0x40000000

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE, _CLONE3 = {"x86_64": 56, "aarch64": 220}, 435

_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # (x86_64, aarch64), from the kernel's tables; None where there is none
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}


def system_call_filter(machine: str | None = None) -> bytes | None:
    """The filter for a machine such as x86_64 (default: this one); None where no table is known."""
    machine = machine or os.uname().machine
    if machine not in _ARCHITECTURES:
        return None
    missing = (_RETURN, 0, 0, _ERROR | errno.ENOSYS)
    forbidden = (_RETURN, 0, 0, _ERROR | errno.EPERM)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        missing,
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32), missing]
    for number in sorted(refused_numbers(machine)):
        program += [(_EQUAL, 0, 1, number), forbidden]
    program += [(_EQUAL, 0, 1, _CLONE3), missing]
    program += [(_EQUAL, 0, 3, _CLONE[machine]), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
    program += [(_ANY_BIT, 0, 1, _NEW_NAMESPACES), forbidden]
    program += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def refused_numbers(machine: str) -> list[int]:
    """The numbers of the refused calls on a machine."""
    column = list(_ARCHITECTURES).index(machine)
    return [number for numbers in _REFUSED.values() if (number := numbers[column]) is not None]
