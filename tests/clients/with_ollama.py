"""The official Ollama client for Python."""

import asyncio
import json
import math
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import ollama

from suite import Mismatch, Suite, expect, expect_error, expect_simulated, expect_that

suite = Suite("python ollama")

CHAT, SMALL, EMBEDDER = "qwen3.6:27b", "llama3.2:3b", "nomic-embed-text:latest"
SHORT = {"num_predict": 12}


def client(url: str, answered: Callable = lambda _: None) -> ollama.Client:
    """A client, and the client's own hook on the HTTP answers it gets."""
    return ollama.Client(url, timeout=30, event_hooks={"response": [answered]})


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


@suite.check()
def list_has_every_model_once(url: str) -> None:
    models = client(url).list().models
    expect("models", sorted(model.model for model in models), [SMALL, EMBEDDER, CHAT])
    for model in models:
        expect(f"length of the digest of {model.model}", len(model.digest), 64)
        expect_that(model.size > 0, f"size of {model.model}", model.size, "bytes")


@suite.check()
def ps_has_each_copy_in_memory(url: str) -> None:
    copies = [model for model in client(url).ps().models if model.model == CHAT]
    expect("copies", len(copies), 3)
    expect("context lengths", {model.context_length for model in copies}, {32_768})


@suite.check()
def show_tells_context_and_abilities(url: str) -> None:
    shown = client(url).show(CHAT)
    expect("context length", shown.modelinfo["qwen35.context_length"], 32_768)
    expect("capabilities", shown.capabilities, ["completion", "tools"])


@suite.check()
def chat(url: str) -> None:
    answer = client(url).chat(CHAT, [user("hello")], options=SHORT)
    expect_simulated(answer.message.content)
    expect("done, done_reason, eval_count", (answer.done, answer.done_reason, answer.eval_count), (True, "length", 12))
    expect_that(answer.prompt_eval_count > 0, "prompt_eval_count", answer.prompt_eval_count, "tokens")
    expect_that(answer.total_duration >= answer.eval_duration > 0, "durations", answer, "a sum and its part")


@suite.check()
def chat_in_pieces_says_the_same(url: str) -> None:
    whole = client(url).chat(CHAT, [user("stream")], options=SHORT).message.content
    pieces = list(client(url).chat(CHAT, [user("stream")], options=SHORT, stream=True))
    expect("pieces", len(pieces), SHORT["num_predict"] + 1)
    expect("text", "".join(piece.message.content for piece in pieces), whole)
    expect("done", [piece.done for piece in pieces], [False] * SHORT["num_predict"] + [True])


@suite.check()
def chat_in_pieces_from_the_async_client(url: str) -> None:
    async def pieces() -> list[str]:
        client = ollama.AsyncClient(url, timeout=30)
        stream = await client.chat(CHAT, [user("async")], options=SHORT, stream=True)
        return [piece.message.content async for piece in stream]

    expect_simulated("".join(asyncio.run(pieces())))


@suite.check()
def two_turns_meet_the_same_node_warm(url: str) -> None:
    heads, messages = [], [user("a long question to Ollama " * 40)]
    talker = client(url, lambda answer: heads.append(answer.headers))
    messages.append(talker.chat(CHAT, messages, options=SHORT).message)
    talker.chat(CHAT, [*messages, user("And then?")], options=SHORT)
    first, second = heads
    expect("node of the second turn", second["x-fleet-node"], first["x-fleet-node"])
    expect("affinity", [head["x-fleet-affinity"] for head in heads], ["new", "session"])


@suite.check()
def generate_goes_on_from_its_context(url: str) -> None:
    heads = []
    talker = client(url, lambda answer: heads.append(answer.headers))
    first = talker.generate(CHAT, "tell me", options=SHORT)
    expect_simulated(first.response)
    second = talker.generate(CHAT, "more", options=SHORT, context=first.context)
    expect_that(second.prompt_eval_count > first.prompt_eval_count, "prompt", second.prompt_eval_count, "a longer one")
    expect("node of the second turn", heads[1]["x-fleet-node"], heads[0]["x-fleet-node"])


@suite.check()
def generate_in_pieces(url: str) -> None:
    pieces = list(client(url).generate(CHAT, "tell me", options=SHORT, stream=True))
    expect("pieces", len(pieces), SHORT["num_predict"] + 1)
    expect_simulated("".join(piece.response for piece in pieces))


@suite.check()
def embed_gives_a_unit_vector_for_each_text(url: str) -> None:
    vectors = client(url).embed(EMBEDDER, ["one", "two"]).embeddings
    expect("lengths", [len(vector) for vector in vectors], [768, 768])
    for vector in vectors:
        expect_that(abs(math.hypot(*vector) - 1) < 1e-3, "norm", math.hypot(*vector), "1")
    legacy = client(url).embeddings(EMBEDDER, "one").embedding
    expect_that(legacy == vectors[0], "the old call's vector", legacy[:3], f"that of the new: {vectors[0][:3]}")


def get_weather(city: str, days: int) -> str:
    """Tells the weather.

    Args:
        city: Where.
        days: How many.
    """
    return f"Sunny in {city} for {days} days."


@suite.check()
def a_python_function_is_called_as_a_tool(url: str) -> None:
    messages = [user("Please call get_weather.")]
    asked = client(url).chat(CHAT, messages, tools=[get_weather])
    calls = [(call.function.name, call.function.arguments) for call in asked.message.tool_calls or []]
    expect("calls", calls, [("get_weather", {"city": "[simulated]", "days": 1})])
    result = {"role": "tool", "tool_name": "get_weather", "content": get_weather(**calls[0][1])}
    told = client(url).chat(CHAT, [*messages, asked.message, result], tools=[get_weather], options=SHORT)
    expect_simulated(told.message.content)


@suite.check()
def a_tool_call_comes_in_a_stream(url: str) -> None:
    pieces = list(client(url).chat(CHAT, [user("call get_weather")], tools=[get_weather], stream=True))
    calls = [call.function.name for piece in pieces for call in piece.message.tool_calls or []]
    expect("calls", calls, ["get_weather"])


@suite.check()
def format_gives_json_that_fits(url: str) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    answer = client(url).chat(CHAT, [user("Where?")], format=schema)
    expect("JSON", json.loads(answer.message.content), {"city": "[simulated]"})


@suite.check()
def keep_alive_is_honoured(url: str) -> None:
    client(url).generate(SMALL, "hello", options=SHORT, keep_alive="2h")
    wanted = datetime.now(timezone.utc) + timedelta(hours=1)
    # The list is Warmgate's last reading of each node, so it may be a few seconds old.
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        expiries = [model.expires_at for model in client(url).ps().models if model.model == SMALL]
        if any(at > wanted for at in expiries):
            return
        time.sleep(0.1)
    raise Mismatch(f"expiry: expected one after {wanted}, got {expiries}")


@suite.check()
def an_unknown_model_is_named_in_the_error(url: str) -> None:
    error = expect_error(ollama.ResponseError, lambda: client(url).chat("moss:1b", [user("hello")]), "moss:1b")
    expect("status", error.status_code, 404)


@suite.check()
def pull_is_refused(url: str) -> None:
    error = expect_error(ollama.ResponseError, lambda: client(url).pull(CHAT), "`management: true`")
    expect("status", error.status_code, 403)
