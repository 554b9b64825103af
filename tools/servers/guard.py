"""Runs as a program of its own between a launcher and a server: ties their lives together, then becomes the server.

`python -I -S guard.py SIGNAL PARENT_PID USER_ID GROUP_ID PROGRAM [ARGUMENT...]`. The kernel sends SIGNAL to the server
when its launcher dies, however it dies. A user id of -1 keeps the present user. It imports nothing of ours: it must
start in milliseconds and from anywhere.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    death_signal, parent_pid, user_id, group_id = (int(word) for word in arguments[:4])
    program = arguments[4:]
    if user_id >= 0:
        os.setgroups([])
        os.setgid(group_id)
        os.setuid(user_id)
    if sys.platform == "linux":
        # After setuid, which would clear the setting.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit("the launcher died before its server started")
    os.execv(program[0], program)  # noqa: S606 - an argument list given by our own launcher


if __name__ == "__main__":
    main(sys.argv[1:])
