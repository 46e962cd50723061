"""Five engines behind one address: simulated Ollama, vLLM and SGLang, real llama.cpp and a real LiteLLM proxy.

Warmgate is told where they are and finds out what they are. The catalogue has the models of all, and each
answers a chat in the dialects of OpenAI, Ollama and Anthropic, whole and in pieces. `X-Fleet-Node` tells which
node answered; the simulated ones tell in which dialect they were asked. Stored responses are gone on from where
they were made. Last comes what `/fleet/status` says of the nodes, with one of them made busy behind its back.
"""

import argparse
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import ask
import fleet
import litellm_proxy
import stored
import told
from ask import Answer
from fleet import Upstream
from processes import Failed, Warmgate
from server import MODEL

SIMULATED = {"ollama": "llama3.2:3b", "vllm": "Qwen/Qwen3-8B", "sglang": "meta-llama/Llama-3.1-8B-Instruct"}
BY_LITELLM = "gemma3-by-litellm"
NODE_OF = {model: node for node, model in SIMULATED.items()} | {MODEL: "llama-cpp", BY_LITELLM: "litellm"}

# What a node is asked for, where that is not what the client asked for.
TRANSLATED = {("ollama", "vllm"): ask.PATHS["openai"], ("ollama", "sglang"): ask.PATHS["openai"]}


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
            passed, problems = check(*start(stack, options))
    except Failed as failure:
        passed, problems = 0, [str(failure)]
    for problem in problems:
        print(f"FAILED: {problem}")
    print(f"{passed} passed, {len(problems)} failed")
    return 1 if problems else 0


def start(stack: ExitStack, options: argparse.Namespace) -> tuple[Warmgate, dict[str, str]]:
    """The whole fleet, and Warmgate before it; also the simulated nodes' own addresses."""
    started = time.monotonic()
    models = {"ollama": [], "vllm": [SIMULATED["vllm"]], "sglang": [SIMULATED["sglang"]]}
    simulated = {
        kind: fleet.simulated(stack, options.simulated, options.home, kind, *served) for kind, served in models.items()
    }
    llama_cpp = fleet.engine(stack, options.real, "llama-cpp")
    proxy = litellm_proxy.start(stack, options.home, BY_LITELLM, behind=llama_cpp, model=MODEL)
    upstreams = [
        *(Upstream(kind, url) for kind, url in simulated.items()),
        Upstream("llama-cpp", llama_cpp),
        Upstream("litellm", proxy.url, slots=1, key_file=proxy.key_file),
    ]
    warmgate = fleet.warmgate(stack, options.warmgate, options.home, upstreams)
    told.await_engines(warmgate.admin)
    print(f"five engines and Warmgate are ready after {time.monotonic() - started:.0f} s", flush=True)
    return warmgate, simulated


def check(warmgate: Warmgate, simulated: dict[str, str]) -> tuple[int, list[str]]:
    """How many of the checks passed, and what was wrong with the others."""
    problems = [catalogue_problem(warmgate.url), *chat_problems(warmgate.url, simulated)]
    problems += stored.problems(warmgate.url, SIMULATED["vllm"], SIMULATED["sglang"])
    problems += told.problems(warmgate.admin, simulated)
    wrong = [problem for problem in problems if problem]
    return len(problems) - len(wrong), wrong


def catalogue_problem(url: str) -> str | None:
    """The merged list must have what each node holds."""
    listed = {model.id for model in ask.openai_client(url).models.list()}
    missing = NODE_OF.keys() - listed
    return f"models: expected {sorted(missing)} too, got {sorted(listed)}" if missing else None


def chat_problems(url: str, simulated: dict[str, str]) -> list[str | None]:
    problems = []
    print(f"{'dialect':<11}{'form':<8}{'model':<34}{'node':<11}{'pieces':>6}{'took':>9}  text")
    for dialect, asks in ask.CHATS.items():
        for model, node in NODE_OF.items():
            for form, chat in asks.items():
                answer = chat(url, model)
                row = f"{dialect:<11}{form:<8}{model:<34}{answer.node or '-':<11}{answer.pieces:>6}"
                print(f"{row}{answer.seconds:>7.2f} s  {answer.text!r}", flush=True)
                what = f"{dialect} {form} {model}"
                problems.append(answer_problem(what, answer, node, form))
                if node in simulated:
                    path = TRANSLATED.get((dialect, node), ask.PATHS[dialect])
                    problems.append(path_problem(what, told.last_path(simulated[node]), path))
    return problems


def answer_problem(what: str, answer: Answer, node: str, form: str) -> str | None:
    if answer.node != node:
        return f"{what}: expected the node {node!r}, got {answer.node!r}"
    if not answer.text:
        return f"{what}: expected a text, got none"
    if form == "pieces" and answer.pieces < 2:
        return f"{what}: expected a stream, got {answer.pieces} piece"
    return None


def path_problem(what: str, got: str, wanted: str) -> str | None:
    return None if got == wanted else f"{what}: expected the node to be asked for {wanted}, got {got}"


if __name__ == "__main__":
    sys.exit(main())
