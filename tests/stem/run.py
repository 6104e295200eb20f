"""Runs Stem's own tests as its run_tests.py does, with ports that are free.

Started in the folder of Stem's sources, with the arguments of run_tests.py. `random_port` of its
test/integ/process.py draws any port from 1024 on and sees only ports whose process it may look at, so that
now and then it draws one that is taken. Here each port is given out once and only if it can be bound, from a
range below that of the kernel's own choices (net.ipv4.ip_local_port_range).
"""

import multiprocessing
import os
import socket
import sys
import unittest

FIRST, LAST = 20000, 30000

# Python 3.12 took these names away; Stem 1.8.2 still uses them.
for old, new in (
    ("assertEquals", "assertEqual"),
    ("assertNotEquals", "assertNotEqual"),
    ("assertRaisesRegexp", "assertRaisesRegex"),
    ("assertRegexpMatches", "assertRegex"),
    ("assert_", "assertTrue"),
):
    if not hasattr(unittest.TestCase, old):
        setattr(unittest.TestCase, old, getattr(unittest.TestCase, new))

# Tests run in processes that are forked; from Python 3.14 on that must be asked for.
multiprocessing.set_start_method("fork")

# Shared by those processes. Where it starts differs from run to run.
following = multiprocessing.Value("i", FIRST + os.getpid() % (LAST - FIRST))


def free_port():
    """The next port that nothing on this machine is bound to, as text."""
    while True:
        with following.get_lock():
            port = following.value
            following.value = FIRST if port + 1 == LAST else port + 1
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return str(port)
            except OSError:
                continue


sys.path.insert(0, os.getcwd())

import run_tests  # noqa: E402 (they lie in the folder that was just added)
import test.integ.process  # noqa: E402

test.integ.process.random_port = free_port

run_tests.main()
