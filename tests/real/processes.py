"""Starts the programs of the check, waits until they can serve, and ends each by its own handle."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

READY_SECONDS_MAX = 120


class Failed(Exception):
    """Something of the check's own did not start, or did not do what it must."""


def spawn(stack: ExitStack, arguments: list[str], log: Path) -> subprocess.Popen:
    """A program whose standard output is read by us and whose standard error goes to the log."""
    errors = stack.enter_context(log.open("w"))
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
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
    process.stdout.close()


def line_after(process: subprocess.Popen, start: str) -> str:
    """What follows on the first line of output that begins so."""
    for line in process.stdout:
        if line.startswith(start):
            return line.removeprefix(start).strip()
    raise Failed(f"{process.args[0]} ended before it said {start!r}")


def engine(stack: ExitStack, home: Path, name: str) -> str:
    """A llama.cpp server that has loaded its model; gives its URL."""
    script = Path(__file__).with_name("server.py")
    arguments = [sys.executable, str(script), str(home / "model.gguf")]
    process = spawn(stack, arguments, home / f"{name}.log")
    url = "http://" + line_after(process, "http://")
    deadline = time.monotonic() + READY_SECONDS_MAX
    while not answers(f"{url}/health"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"the engine {name} does not serve; see {home / name}.log")
        time.sleep(0.1)
    return url


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, TimeoutError):
        return False


def warmgate(stack: ExitStack, program: Path, home: Path, nodes: dict[str, str]) -> str:
    """Warmgate over these nodes, ready; gives the URL that clients use."""
    config = home / "warmgate.yaml"
    config.write_text(configuration(nodes))
    arguments = [str(program), "run", "-c", str(config)]
    process = spawn(stack, arguments, home / "warmgate.log")
    url = line_after(process, "warmgate: listening on ")
    line_after(process, "warmgate: admin on ")
    state = line_after(process, "warmgate: ")
    if state != "ready":
        raise Failed(f"warmgate says {state!r}")
    return url


def configuration(nodes: dict[str, str]) -> str:
    lines = [
        'listen: [{address: "127.0.0.1:0"}]',
        'admin: {address: "127.0.0.1:0"}',
        'log: {access: "off"}',
        "upstreams:",
    ]
    for name, url in nodes.items():
        lines.append(f'  - {{name: {name}, url: "{url}", engine: openai, slots: 1}}')
    return "\n".join(lines) + "\n"
