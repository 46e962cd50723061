"""Real llama.cpp servers, and a Warmgate in front of upstreams of any kind."""

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import processes
from processes import Warmgate

SERVER = Path(__file__).with_name("server.py")


@dataclass
class Upstream:
    """A line under `upstreams:`. What it is not told, Warmgate has to find out."""

    name: str
    url: str
    engine: str | None = None
    slots: int | None = None
    key_file: Path | None = None

    def line(self) -> str:
        fields = [f"name: {self.name}", f'url: "{self.url}"']
        fields += [f"engine: {self.engine}"] if self.engine else []
        fields += [f"slots: {self.slots}"] if self.slots else []
        fields += [f'api_key: {{file: "{self.key_file}"}}'] if self.key_file else []
        return f"  - {{{', '.join(fields)}}}"


def engine(stack: ExitStack, home: Path, name: str) -> str:
    """A llama.cpp server that has loaded its model; gives its URL."""
    log = home / f"{name}.log"
    process = processes.spawn(stack, [sys.executable, str(SERVER), str(home / "model.gguf")], log)
    url = "http://" + processes.line_after(process, "http://")
    processes.await_answer(process, f"{url}/health", log)
    return url


def simulated(stack: ExitStack, program: Path, home: Path, kind: str, *model: str) -> str:
    """A simulated node that passes for an engine of that kind; gives its URL."""
    process = processes.spawn(stack, [str(program), kind, *model], home / f"simulated-{kind}.log")
    return "http://" + processes.line_after(process, "http://")


def warmgate(stack: ExitStack, program: Path, home: Path, upstreams: list[Upstream]) -> Warmgate:
    """Warmgate over these upstreams, ready."""
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
