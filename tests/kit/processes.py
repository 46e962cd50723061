"""Starts the programs of a check, waits until they can serve, and ends each by its own handle."""

import subprocess
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

READY_SECONDS_MAX = 120


class Failed(Exception):
    """Something of the check's own did not start, or did not do what it must."""


@dataclass
class Warmgate:
    """Where it serves clients, and where its operator."""

    url: str
    admin: str


def spawn(
    stack: ExitStack, arguments: list[str], log: Path, talks: bool = True, env: dict[str, str] | None = None
) -> subprocess.Popen:
    """A program whose words go to the log; if it talks, its standard output is for us to read instead."""
    words = stack.enter_context(log.open("w"))
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if talks else words,
        stderr=words,
        text=True,
        env=env,
    )
    stack.callback(end, process)
    return process


def end(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout:
        process.stdout.close()


def line_after(process: subprocess.Popen, start: str) -> str:
    """What follows on the first line of output that begins so."""
    for line in process.stdout:
        if line.startswith(start):
            return line.removeprefix(start).strip()
    raise Failed(f"{process.args[0]} ended before it said {start!r}")


def await_answer(process: subprocess.Popen, url: str, log: Path) -> None:
    """Waits until the program answers there; its log tells more if it does not."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while not answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"nothing serves {url}; see {log}")
        time.sleep(0.1)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


def warmgate(stack: ExitStack, program: Path, arguments: list[str], log: Path) -> Warmgate:
    """Warmgate, ready."""
    process = spawn(stack, [str(program), *arguments], log)
    url = line_after(process, "warmgate: listening on ")
    admin = line_after(process, "warmgate: admin on ")
    state = line_after(process, "warmgate: ")
    if state != "ready":
        raise Failed(f"warmgate says {state!r}")
    return Warmgate(url, admin)
