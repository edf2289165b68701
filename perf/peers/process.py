# SPDX-License-Identifier: BSD-3-Clause
"""Processes with a deadline. Each is the leader of a group of its own, which ends with it, with a signal to this
program, and with this program's death."""
import os
import signal
import subprocess
import time

GRACE_S = 2  # between SIGTERM, on which libraries remove their files in /dev/shm, and SIGKILL
groups = set()


class Interrupted(Exception):
    pass


def on_signal(number, frame):
    raise Interrupted(signal.Signals(number).name)


def catch_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)


def start(args, cwd=None, env=None, output=None):
    """`output`: a file for both streams; None: pipes."""
    child = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--"] + args, cwd=cwd, env=env,
                             stdin=subprocess.DEVNULL, stdout=output or subprocess.PIPE,
                             stderr=subprocess.STDOUT if output else subprocess.PIPE, text=True, errors="replace",
                             start_new_session=True)
    groups.add(child.pid)
    return child


def signal_group(group, number):
    """False: nothing is left of it."""
    try:
        os.killpg(group, number)
        return True
    except ProcessLookupError:
        return False


def stop(child):
    """Ends what is left of the group, and reaps the child."""
    if child.poll() is None:
        signal_group(child.pid, signal.SIGTERM)
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            pass
    signal_group(child.pid, signal.SIGKILL)
    child.wait()
    groups.discard(child.pid)
    for pipe in (child.stdout, child.stderr):
        if pipe:
            pipe.close()


def finish(child):
    """Lets a child end by itself, so that it removes its files in /dev/shm, and stops it after GRACE_S."""
    try:
        child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        pass
    stop(child)


def stop_all():
    for group in list(groups):
        signal_group(group, signal.SIGTERM)
    end = time.monotonic() + GRACE_S
    while any(signal_group(g, 0) for g in groups) and time.monotonic() < end:
        for group in list(groups):
            try:
                os.waitpid(group, os.WNOHANG)
            except ChildProcessError:
                pass
        time.sleep(0.02)
    for group in list(groups):
        signal_group(group, signal.SIGKILL)
    groups.clear()


def run(args, seconds, cwd=None, env=None):
    """Exit status, standard output and standard error. Status 127: no such program; 124: it was stopped at the
    deadline."""
    try:
        child = start(args, cwd, env)
    except OSError as e:
        return 127, "", "%s: %s" % (args[0], e.strerror)
    try:
        out, err = child.communicate(timeout=seconds)
        return child.returncode, out, err
    except subprocess.TimeoutExpired:
        stop(child)
        return 124, "", "no end within %d s" % seconds
    finally:
        stop(child)
