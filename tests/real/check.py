"""Five turns over two real engines: every follow-up must find its prompt cached.

The judge is the engine's own count of cached prompt tokens. As a contrast the last turn is sent
once more, straight to the engine that did not have the conversation: it has next to nothing cached.
"""

import argparse
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import fleet
from fleet import Upstream
from processes import Failed
from talk import OPENING, Talk, Turn

QUESTIONS = [
    OPENING,
    "And which is the least surprising?",
    "What grows on stone 7?",
    "How far is it to the mill?",
    "Thank you. Sum it up in three words.",
]

# A follow-up must find at least this share of the turn before it; a stranger at most that share.
WARM_SHARE_MIN = 0.8
COLD_SHARE_MAX = 0.1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--warmgate", type=Path, required=True)
    parser.add_argument("--direct", action="store_true")
    options = parser.parse_args()
    # Out of time: leave by the way that ends what was started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("FAILED: out of time"))
    try:
        with ExitStack() as stack:
            problems = check(stack, options)
    except Failed as failure:
        problems = [str(failure)]
    for problem in problems:
        print(f"FAILED: {problem}")
    print(f"{0 if problems else 1} passed, {1 if problems else 0} failed")
    return 1 if problems else 0


def check(stack: ExitStack, options: argparse.Namespace) -> list[str]:
    home, direct = options.home, options.direct
    nodes = {name: fleet.engine(stack, home, name) for name in ("left", "right")}
    upstreams = [Upstream(name, url, "openai", slots=1) for name, url in nodes.items()]
    url = nodes["left"] if direct else fleet.warmgate(stack, options.warmgate, home, upstreams).url
    talk = Talk(url)

    print(f"{'turn':<10}{'node':<8}{'affinity':<10}{'prompt':>7}{'cached':>7}{'first token':>13}")
    turns = []
    for number, question in enumerate(QUESTIONS, start=1):
        turns.append(talk.say(question))
        print_row(str(number), turns[-1])

    home_node = "left" if direct else turns[0].node
    talk.client = Talk(stranger(nodes, home_node)).client
    talk.messages.pop()
    contrast = talk.ask()
    print_row("elsewhere", contrast)

    problems = warmth_problems(turns) + coldness_problems(contrast)
    return problems if direct else problems + routing_problems(turns)


def stranger(nodes: dict[str, str], home_node: str) -> str:
    """The URL of the engine that does not have the conversation."""
    others = [url for name, url in nodes.items() if name != home_node]
    if len(others) != 1:
        raise Failed(f"no engine is called {home_node!r}")
    return others[0]


def warmth_problems(turns: list[Turn]) -> list[str]:
    problems = []
    for number, (before, turn) in enumerate(zip(turns, turns[1:]), start=2):
        if turn.cached_tokens < WARM_SHARE_MIN * before.prompt_tokens:
            problems.append(
                f"turn {number} found {turn.cached_tokens} tokens cached,"
                f" of {before.prompt_tokens} that the turn before had left"
            )
    return problems


def coldness_problems(contrast: Turn) -> list[str]:
    if contrast.cached_tokens <= COLD_SHARE_MAX * contrast.prompt_tokens:
        return []
    return [f"the other engine had {contrast.cached_tokens} tokens cached: the contrast is void"]


def routing_problems(turns: list[Turn]) -> list[str]:
    problems = []
    if len({turn.node for turn in turns}) != 1:
        problems.append(f"not one node: {[turn.node for turn in turns]}")
    affinities = [turn.affinity for turn in turns]
    if affinities != ["new"] + ["session"] * (len(turns) - 1):
        problems.append(f"affinity of the turns: {affinities}")
    return problems


def print_row(name: str, turn: Turn) -> None:
    print(
        f"{name:<10}{turn.node:<8}{turn.affinity:<10}{turn.prompt_tokens:>7}"
        f"{turn.cached_tokens:>7}{turn.first_token_seconds:>11.2f} s",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
