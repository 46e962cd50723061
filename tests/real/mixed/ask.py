"""The same question in each dialect and form, put by the official client of the dialect."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import anthropic
import ollama
from openai import OpenAI

QUESTION = [{"role": "user", "content": "What grows on a stone?"}]
TOKENS = 8

PATHS = {"openai": "/v1/chat/completions", "ollama": "/api/chat", "anthropic": "/v1/messages"}


@dataclass
class Answer:
    """What came, from where, in how many pieces."""

    node: str | None
    text: str
    pieces: int
    seconds: float


def openai_client(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="none", timeout=120, max_retries=0)


def openai_whole(url: str, model: str) -> Answer:
    started = time.monotonic()
    create = openai_client(url).chat.completions.with_raw_response.create
    answer = create(model=model, messages=QUESTION, max_tokens=TOKENS)
    text = answer.parse().choices[0].message.content or ""
    return Answer(answer.headers.get("x-fleet-node"), text, 1, time.monotonic() - started)


def openai_pieces(url: str, model: str) -> Answer:
    started = time.monotonic()
    create = openai_client(url).chat.completions.with_raw_response.create
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


def anthropic_whole(url: str, model: str) -> Answer:
    started = time.monotonic()
    create = anthropic_client(url).messages.with_raw_response.create
    answer = create(model=model, messages=QUESTION, max_tokens=TOKENS)
    text = "".join(block.text for block in answer.parse().content if block.type == "text")
    return Answer(answer.headers.get("x-fleet-node"), text, 1, time.monotonic() - started)


def anthropic_pieces(url: str, model: str) -> Answer:
    started = time.monotonic()
    with anthropic_client(url).messages.stream(model=model, messages=QUESTION, max_tokens=TOKENS) as stream:
        pieces = [piece for piece in stream.text_stream if piece]
        node = stream.response.headers.get("x-fleet-node")
    return Answer(node, "".join(pieces), len(pieces), time.monotonic() - started)


def anthropic_client(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="none", timeout=120, max_retries=0)


CHATS: dict[str, dict[str, Callable[[str, str], Answer]]] = {
    "openai": {"whole": openai_whole, "pieces": openai_pieces},
    "ollama": {"whole": ollama_whole, "pieces": ollama_pieces},
    "anthropic": {"whole": anthropic_whole, "pieces": anthropic_pieces},
}
