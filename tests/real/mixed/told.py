"""What Warmgate's admin port says of the nodes, and what the simulated nodes say of themselves."""

import http.client
import json
import time
import urllib.request
from collections.abc import Callable

from ask import PATHS, QUESTION
from processes import Failed

ENGINES = {"ollama": "ollama", "vllm": "vllm", "sglang": "sglang", "llama-cpp": "llama_cpp", "litellm": "litellm"}

# Told nothing, it takes what the engine reports, and else what is usual for the engine.
SLOTS = {
    "ollama": (1, "engine default"),
    "vllm": (128, "engine default"),
    "sglang": (4, "reported by the engine"),
    "llama-cpp": (1, "reported by the engine"),
    "litellm": (1, "configured"),
}

# A simulated node runs four at once.
BUSY_WITH = 6
BUSY = {"running": 4, "waiting": 2}
IDLE = {"running": 0, "waiting": 0}

SECONDS_MAX = 20


def fetch(url: str, body: dict | None = None) -> object:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=10) as answer:
        return json.load(answer)


def nodes(admin: str) -> dict[str, dict]:
    return {node["name"]: node for node in fetch(f"{admin}/fleet/status")["nodes"]}


def last_path(simulated: str) -> str:
    """What the node was asked for last."""
    return fetch(f"{simulated}/sim/log")[-1]["path"]


def await_engines(admin: str) -> None:
    """Waits until every node is up and known for what it is; `problems` checks for what."""
    await_that(lambda: all(node["healthy"] and node["engine"] and node["models"] for node in nodes(admin).values()))


def problems(admin: str, simulated: dict[str, str]) -> list[str | None]:
    problems = []
    for name, node in nodes(admin).items():
        model = node["models"][0]
        print(f"status     {name}: {node['engine']}, {model['slots']} slots ({model['slots_source']}), {node['load']}")
        problems.append(difference(f"engine of {name}", node["engine"], ENGINES[name]))
        count, source = SLOTS[name]
        problems.append(difference(f"slots of {name}", model["slots"], count))
        told = model["slots_source"]
        problems.append(None if told.startswith(source) else f"slots of {name}: expected {source!r}, got {told!r}")
    problems.append(difference("load of a node that tells none", nodes(admin)["ollama"]["load"], None))
    for name in ("vllm", "sglang"):
        problems += load_problems(admin, name, simulated[name])
    return problems


def load_problems(admin: str, name: str, url: str) -> list[str | None]:
    """Requests that Warmgate has not sent must show in its status while they are there, and no longer."""

    def load() -> object:
        return nodes(admin)[name]["load"]

    fetch(f"{url}/sim/behave", {"behave": "crawl", "times": 1000})
    others = [ask_and_wait(url) for _ in range(BUSY_WITH)]
    busy = await_that(lambda: load() == BUSY, otherwise=load)
    print(f"status     {name}: {BUSY_WITH} requests of others show as {busy}")
    for connection in others:
        connection.close()
    fetch(f"{url}/sim/behave", {"behave": "none"})
    idle = await_that(lambda: load() == IDLE, otherwise=load)
    return [
        difference(f"load of {name} with {BUSY_WITH} requests of others", busy, BUSY),
        difference(f"load of {name} when they have left", idle, IDLE),
    ]


def ask_and_wait(url: str) -> http.client.HTTPConnection:
    """A chat that is left unanswered until the connection is closed."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    body = json.dumps({"messages": QUESTION, "stream": True})
    connection.request("POST", PATHS["openai"], body)
    return connection


def await_that(holds: Callable[[], bool], otherwise: Callable[[], object] | None = None) -> object:
    """Waits until it holds; `otherwise` gives what to tell, be it that or not."""
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        if time.monotonic() > deadline:
            if otherwise is None:
                raise Failed("not every node was up and known in time; see warmgate.log")
            return otherwise()
        time.sleep(0.2)
    return otherwise() if otherwise else None


def difference(what: str, got: object, wanted: object) -> str | None:
    return None if got == wanted else f"{what}: expected {wanted!r}, got {got!r}"
