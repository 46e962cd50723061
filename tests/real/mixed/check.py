"""Three engines behind one address: simulated Ollama, real llama.cpp, and a real LiteLLM proxy.

The catalogue has the models of all, and each answers a chat in OpenAI's dialect and in Ollama's, whole
and in pieces, whichever of them its engine speaks. `X-Fleet-Node` tells which node answered.
"""

import argparse
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import ollama
from openai import OpenAI

import fleet
import litellm_proxy
from fleet import Upstream
from processes import Failed
from server import MODEL

SIMULATED, BY_LITELLM = "llama3.2:3b", "gemma3-by-litellm"
NODE_OF = {SIMULATED: "ollama", MODEL: "llama-cpp", BY_LITELLM: "litellm"}

QUESTION = [{"role": "user", "content": "What grows on a stone?"}]
TOKENS = 8


@dataclass
class Answer:
    """What came, from where, in how many pieces."""

    node: str | None
    text: str
    pieces: int
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True, help="where LiteLLM is installed")
    parser.add_argument("--real", type=Path, required=True, help="where llama.cpp and its model are")
    parser.add_argument("--warmgate", type=Path, required=True)
    parser.add_argument("--simulated", type=Path, required=True)
    options = parser.parse_args()
    # Out of time: leave by the way that ends what was started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("FAILED: out of time"))
    try:
        with ExitStack() as stack:
            passed, problems = check(start(stack, options))
    except Failed as failure:
        passed, problems = 0, [str(failure)]
    for problem in problems:
        print(f"FAILED: {problem}")
    print(f"{passed} passed, {len(problems)} failed")
    return 1 if problems else 0


def start(stack: ExitStack, options: argparse.Namespace) -> str:
    """The whole fleet, and Warmgate before it; gives the URL that clients use."""
    started = time.monotonic()
    simulated = fleet.simulated(stack, options.simulated, options.home)
    llama_cpp = fleet.engine(stack, options.real, "llama-cpp")
    proxy = litellm_proxy.start(stack, options.home, BY_LITELLM, behind=llama_cpp, model=MODEL)
    upstreams = [
        Upstream("ollama", simulated, "ollama"),
        Upstream("llama-cpp", llama_cpp, "llama_cpp"),
        Upstream("litellm", proxy.url, "litellm", proxy.key_file),
    ]
    url = fleet.warmgate(stack, options.warmgate, options.home, upstreams)
    print(f"three engines and Warmgate are ready after {time.monotonic() - started:.0f} s", flush=True)
    return url


def check(url: str) -> tuple[int, list[str]]:
    """How many of the checks passed, and what was wrong with the others."""
    problems = [catalogue_problem(url)]
    print(f"{'dialect':<9}{'form':<8}{'model':<19}{'node':<11}{'pieces':>6}{'took':>9}  text")
    for dialect, asks in (("openai", (openai_whole, openai_pieces)), ("ollama", (ollama_whole, ollama_pieces))):
        for model in NODE_OF:
            for form, ask in zip(("whole", "pieces"), asks):
                answer = ask(url, model)
                row = f"{dialect:<9}{form:<8}{model:<19}{answer.node or '-':<11}{answer.pieces:>6}"
                print(f"{row}{answer.seconds:>7.2f} s  {answer.text!r}", flush=True)
                problems.append(answer_problem(f"{dialect} {form} {model}", answer, NODE_OF[model], form))
    wrong = [problem for problem in problems if problem]
    return len(problems) - len(wrong), wrong


def catalogue_problem(url: str) -> str | None:
    """The merged list must have what each node holds."""
    listed = {model.id for model in openai(url).models.list()}
    missing = NODE_OF.keys() - listed
    return f"models: expected {sorted(missing)} too, got {sorted(listed)}" if missing else None


def answer_problem(what: str, answer: Answer, node: str, form: str) -> str | None:
    if answer.node != node:
        return f"{what}: expected the node {node!r}, got {answer.node!r}"
    if not answer.text:
        return f"{what}: expected a text, got none"
    if form == "pieces" and answer.pieces < 2:
        return f"{what}: expected a stream, got {answer.pieces} piece"
    return None


# === the same question in each dialect and form ===


def openai(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="none", timeout=120, max_retries=0)


def openai_whole(url: str, model: str) -> Answer:
    started = time.monotonic()
    create = openai(url).chat.completions.with_raw_response.create
    answer = create(model=model, messages=QUESTION, max_tokens=TOKENS)
    text = answer.parse().choices[0].message.content or ""
    return Answer(answer.headers.get("x-fleet-node"), text, 1, time.monotonic() - started)


def openai_pieces(url: str, model: str) -> Answer:
    started = time.monotonic()
    create = openai(url).chat.completions.with_raw_response.create
    answer = create(model=model, messages=QUESTION, max_tokens=TOKENS, stream=True)
    deltas = [chunk.choices[0].delta.content for chunk in answer.parse() if chunk.choices]
    pieces = [delta for delta in deltas if delta]
    return Answer(answer.headers.get("x-fleet-node"), "".join(pieces), len(pieces), time.monotonic() - started)


def ollama_whole(url: str, model: str) -> Answer:
    started, nodes = time.monotonic(), []
    answer = ollama_client(url, nodes).chat(model, QUESTION, options={"num_predict": TOKENS})
    return Answer(nodes[0], answer.message.content, 1, time.monotonic() - started)


def ollama_pieces(url: str, model: str) -> Answer:
    started, nodes = time.monotonic(), []
    stream = ollama_client(url, nodes).chat(model, QUESTION, options={"num_predict": TOKENS}, stream=True)
    pieces = [piece.message.content for piece in stream if piece.message.content]
    return Answer(nodes[0], "".join(pieces), len(pieces), time.monotonic() - started)


def ollama_client(url: str, nodes: list[str | None]) -> ollama.Client:
    """A client that adds to the list which node answered."""

    def answered(answer) -> None:
        nodes.append(answer.headers.get("x-fleet-node"))

    return ollama.Client(url, timeout=120, event_hooks={"response": [answered]})


if __name__ == "__main__":
    sys.exit(main())
