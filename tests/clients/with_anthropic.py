"""The official Anthropic client for Python."""

import anthropic

from suite import Suite, expect, expect_error, expect_simulated, expect_that

suite = Suite("python anthropic")

MODEL = "qwen3.6:27b"
TOKENS = 12

WEATHER = {
    "name": "get_weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def client(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="none", timeout=30, max_retries=0)


def asked(*messages: object, **more: object) -> dict:
    return {"model": MODEL, "max_tokens": TOKENS, "messages": list(messages), **more}


def user(content: object) -> dict:
    return {"role": "user", "content": content}


@suite.check()
def a_message(url: str) -> None:
    answer = client(url).messages.create(**asked(user("hello"), system="Be brief."))
    expect("content types", [block.type for block in answer.content], ["text"])
    expect_simulated(answer.content[0].text)
    expect("stop reason, output tokens", (answer.stop_reason, answer.usage.output_tokens), ("max_tokens", TOKENS))
    expect_that(answer.usage.input_tokens > 0, "input tokens", answer.usage.input_tokens, "some")


@suite.check()
def a_message_in_pieces_says_the_same(url: str) -> None:
    whole = client(url).messages.create(**asked(user("stream"))).content[0].text
    with client(url).messages.stream(**asked(user("stream"))) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    expect("pieces", len(pieces), TOKENS)
    expect("text", "".join(pieces), whole)
    expect("stop reason, output tokens", (final.stop_reason, final.usage.output_tokens), ("max_tokens", TOKENS))


@suite.check()
def two_turns_meet_the_same_node_warm(url: str) -> None:
    question = user("a long question to Anthropic " * 40)
    create = client(url).messages.with_raw_response.create
    first = create(**asked(question))
    answer = {"role": "assistant", "content": first.parse().content}
    second = create(**asked(question, answer, user("And then?")))
    expect("node of the second turn", second.headers.get("x-fleet-node"), first.headers.get("x-fleet-node"))
    affinities = [answer.headers.get("x-fleet-affinity") for answer in (first, second)]
    expect("affinity", affinities, ["new", "session"])
    cached = second.parse().usage.cache_read_input_tokens
    expect_that(cached > 100, "cached tokens", cached, "most of the first turn's")


@suite.check()
def a_tool_is_called(url: str) -> None:
    question = user("Please call get_weather.")
    answer = client(url).messages.create(**asked(question, tools=[WEATHER]))
    expect("stop reason", answer.stop_reason, "tool_use")
    call = answer.content[0]
    expect("name and input", (call.name, call.input), ("get_weather", {"city": "[simulated]"}))
    result = user([{"type": "tool_result", "tool_use_id": call.id, "content": "Sunny."}])
    history = (question, {"role": "assistant", "content": answer.content}, result)
    expect_simulated(client(url).messages.create(**asked(*history, tools=[WEATHER])).content[0].text)


@suite.check()
def a_tool_call_comes_in_a_stream(url: str) -> None:
    with client(url).messages.stream(**asked(user("call get_weather"), tools=[WEATHER])) as stream:
        final = stream.get_final_message()
    expect("stop reason", final.stop_reason, "tool_use")
    expect("input", final.content[0].input, {"city": "[simulated]"})


@suite.check()
def an_unknown_model_is_named_in_the_error(url: str) -> None:
    create = client(url).messages.create
    unknown = asked(user("hello")) | {"model": "moss:1b"}
    expect_error(anthropic.NotFoundError, lambda: create(**unknown), "moss:1b")
