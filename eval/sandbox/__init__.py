"""The box that runs model-written programs.

What it holds off: reading or changing the host's files, the network, other processes, the caller's
environment, running for ever, filling memory, disk or the process table, taking all cores, leaving anything
behind, and the system calls that have opened sandboxes before (system_calls.py). attacks.py has what it was
tried with, and eval/attack.py tries that on any machine.

What it does NOT protect from: defects of the kernel in the system calls that are left; side channels such as
timing, caches and the load of the machine; a program that reads the clock, the processor's model or the
kernel's version and behaves accordingly; some ten thousand files more than allowed between two looks at
their number; and, where no control group is writable, the use of all cores, and a few hundred megabytes of
overshoot between two looks at the memory in use. The interpreter, its packages, /usr and the repository are
readable inside and trusted. Libraries that a fork server has imported (fork_server.py) are in memory that
programs share, and count towards no limit. A program can always claim success by exiting with code 0.

This is bubblewrap's (bubblewrap.py); container.py and apptainer.py say what differs in an image.
"""
