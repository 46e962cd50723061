"""A real LiteLLM proxy in front of one server that speaks OpenAI's API, with a key of its own."""

import json
import os
import secrets
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import processes

# Without the first it asks another machine for prices.
ENVIRONMENT = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False", "DO_NOT_TRACK": "1"}


@dataclass
class Proxy:
    """Where it serves, and the file with the key that it wants."""

    url: str
    key_file: Path


def start(stack: ExitStack, home: Path, name: str, behind: str, model: str) -> Proxy:
    """Serves `name`, with answers that the server behind it gives as `model`."""
    key_file, config, log = (home / file for file in ("key.txt", "litellm.json", "litellm.log"))
    key = f"sk-{secrets.token_hex(16)}"
    key_file.touch(mode=0o600)
    key_file.write_text(key)
    # JSON is YAML, which it wants.
    config.write_text(json.dumps(configuration(name, behind, model, key)))
    port = str(free_port())
    arguments = ["--config", str(config), "--host", "127.0.0.1", "--port", port, "--num_workers", "1"]
    program = str(home / "venv" / "bin" / "litellm")
    process = processes.spawn(stack, [program, *arguments], log, talks=False, env=os.environ | ENVIRONMENT)
    url = f"http://127.0.0.1:{port}"
    # Its `/health` would ask the models.
    processes.await_answer(process, f"{url}/health/liveliness", log)
    return Proxy(url, key_file.resolve())


def configuration(name: str, behind: str, model: str, key: str) -> dict:
    target = {"model": f"openai/{model}", "api_base": f"{behind}/v1", "api_key": "none"}
    return {
        "model_list": [{"model_name": name, "litellm_params": target}],
        "general_settings": {"master_key": key},
    }


def free_port() -> int:
    """Free a moment ago: it takes a number, and does not tell one that it chose."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
