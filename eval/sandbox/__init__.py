"""The box that runs model-written programs.

What it holds off: reading or changing the host's files, the network, other processes, the caller's
environment, running for ever, filling memory, disk or the process table, and leaving anything behind.

What it does NOT protect from: defects of the kernel (a program may make any system call, user namespaces
included when the caller is root); side channels such as timing, caches and the load of the machine; a
program that reads the clock, the processor's model or the kernel's version and behaves accordingly; inodes
(a tmpfs bounds bytes, not the number of files); and, where no control group is writable, a few hundred
megabytes of overshoot between two looks at the memory in use. The interpreter, its packages, /usr and the
repository are readable inside and trusted. A program can always claim success by exiting with code 0.
"""
