"""Real llama.cpp servers, and a Warmgate in front of upstreams of any kind."""

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import processes

SERVER = Path(__file__).with_name("server.py")


@dataclass
class Upstream:
    """A line under `upstreams:`."""

    name: str
    url: str
    engine: str
    key_file: Path | None = None

    def line(self) -> str:
        key = f', api_key: {{file: "{self.key_file}"}}' if self.key_file else ""
        return f'  - {{name: {self.name}, url: "{self.url}", engine: {self.engine}, slots: 1{key}}}'


def engine(stack: ExitStack, home: Path, name: str) -> str:
    """A llama.cpp server that has loaded its model; gives its URL."""
    log = home / f"{name}.log"
    process = processes.spawn(stack, [sys.executable, str(SERVER), str(home / "model.gguf")], log)
    url = "http://" + processes.line_after(process, "http://")
    processes.await_answer(process, f"{url}/health", log)
    return url


def simulated(stack: ExitStack, program: Path, home: Path) -> str:
    """A simulated Ollama node; gives its URL."""
    process = processes.spawn(stack, [str(program)], home / "simulated.log")
    return "http://" + processes.line_after(process, "http://")


def warmgate(stack: ExitStack, program: Path, home: Path, upstreams: list[Upstream]) -> str:
    """Warmgate over these upstreams, ready; gives the URL that clients use."""
    config = home / "warmgate.yaml"
    lines = [
        'listen: [{address: "127.0.0.1:0"}]',
        'admin: {address: "127.0.0.1:0"}',
        'log: {access: "off"}',
        "upstreams:",
        *(upstream.line() for upstream in upstreams),
    ]
    config.write_text("\n".join(lines) + "\n")
    return processes.warmgate(stack, program, ["run", "-c", str(config)], home / "warmgate.log")
