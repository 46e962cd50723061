"""The official OpenAI client for Python."""

import json

import openai
from pydantic import BaseModel

from suite import Suite, expect, expect_error, expect_simulated, expect_that

suite = Suite("python openai")

CHAT, EMBEDDER = "qwen3.6:27b", "nomic-embed-text:latest"
TOKENS = 12

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=30, max_retries=0)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def expect_usage(usage: openai.types.CompletionUsage, output_tokens: int) -> None:
    expect("completion tokens", usage.completion_tokens, output_tokens)
    expect_that(usage.prompt_tokens > 0, "prompt tokens", usage.prompt_tokens, "some")
    expect("total tokens", usage.total_tokens, usage.prompt_tokens + output_tokens)


@suite.check()
def models_are_listed_and_retrieved(url: str) -> None:
    ids = [model.id for model in client(url).models.list()]
    expect("models", sorted(ids), ["llama3.2:3b", EMBEDDER, CHAT])
    for id in ids:
        model = client(url).models.retrieve(id)
        expect("id and object", (model.id, model.object), (id, "model"))


@suite.check()
def chat(url: str) -> None:
    answer = client(url).chat.completions.create(model=CHAT, messages=[user("hello")], max_tokens=TOKENS)
    expect_simulated(answer.choices[0].message.content)
    expect("finish reason", answer.choices[0].finish_reason, "length")
    expect_usage(answer.usage, TOKENS)


@suite.check()
def chat_in_pieces_says_the_same(url: str) -> None:
    asked = dict(model=CHAT, messages=[user("stream")], max_completion_tokens=TOKENS)
    whole = client(url).chat.completions.create(**asked).choices[0].message.content
    stream = client(url).chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    expect("pieces with text", len([piece for piece in pieces if piece]), TOKENS)
    expect("text", "".join(piece or "" for piece in pieces), whole)
    expect_usage(chunks[-1].usage, TOKENS)


@suite.check()
def two_turns_meet_the_same_node_warm(url: str) -> None:
    messages = [user("a long question to OpenAI " * 40)]
    create = client(url).chat.completions.with_raw_response.create
    first = create(model=CHAT, messages=messages, max_tokens=TOKENS)
    before = first.parse()
    messages += [before.choices[0].message, user("And then?")]
    second = create(model=CHAT, messages=messages, max_tokens=TOKENS)
    expect("node of the second turn", second.headers["x-fleet-node"], first.headers["x-fleet-node"])
    affinities = [answer.headers["x-fleet-affinity"] for answer in (first, second)]
    expect("affinity", affinities, ["new", "session"])
    cached = second.parse().usage.prompt_tokens_details.cached_tokens
    known = before.usage.prompt_tokens
    expect_that(cached >= 0.8 * known, "cached tokens", cached, f"most of the {known} of the first turn")


@suite.check()
def a_tool_is_called(url: str) -> None:
    messages = [user("Please call get_weather.")]
    asked = client(url).chat.completions.create(model=CHAT, messages=messages, tools=[WEATHER]).choices[0]
    expect("finish reason", asked.finish_reason, "tool_calls")
    call = asked.message.tool_calls[0]
    expect("name", call.function.name, "get_weather")
    expect("arguments", json.loads(call.function.arguments), {"city": "[simulated]"})
    messages += [asked.message, {"role": "tool", "tool_call_id": call.id, "content": "Sunny."}]
    told = client(url).chat.completions.create(model=CHAT, messages=messages, tools=[WEATHER], max_tokens=TOKENS)
    expect_simulated(told.choices[0].message.content)


@suite.check()
def a_tool_call_comes_in_a_stream(url: str) -> None:
    asked = dict(model=CHAT, messages=[user("call get_weather")], tools=[WEATHER])
    with client(url).chat.completions.stream(**asked) as stream:
        choice = stream.get_final_completion().choices[0]
    expect("finish reason", choice.finish_reason, "tool_calls")
    expect("calls", [call.function.name for call in choice.message.tool_calls], ["get_weather"])


class Place(BaseModel):
    city: str
    days: int


@suite.check()
def a_pydantic_model_is_parsed(url: str) -> None:
    asked = dict(model=CHAT, messages=[user("Where?")], response_format=Place)
    answer = client(url).chat.completions.parse(**asked)
    expect("place", answer.choices[0].message.parsed, Place(city="[simulated]", days=1))


@suite.check()
def completion(url: str) -> None:
    answer = client(url).completions.create(model=CHAT, prompt="tell me", max_tokens=TOKENS)
    expect_simulated(answer.choices[0].text)
    expect_usage(answer.usage, TOKENS)
    chunks = list(client(url).completions.create(model=CHAT, prompt="tell me", max_tokens=TOKENS, stream=True))
    expect("text", "".join(chunk.choices[0].text for chunk in chunks), answer.choices[0].text)


@suite.check()
def embeddings_packed_and_plain_are_the_same(url: str) -> None:
    create = client(url).embeddings.create
    plain = create(model=EMBEDDER, input=["one", "two"], encoding_format="float").data
    # Left out, the client asks for base64 and unpacks it.
    packed = create(model=EMBEDDER, input=["one", "two"]).data
    expect("lengths", [len(entry.embedding) for entry in packed], [768, 768])
    for ours, theirs in zip(packed, plain):
        difference = max(abs(a - b) for a, b in zip(ours.embedding, theirs.embedding))
        expect_that(difference < 1e-6, "largest difference", difference, "none")


@suite.check()
def an_unknown_model_is_named_in_the_error(url: str) -> None:
    create = client(url).chat.completions.create
    expect_error(openai.NotFoundError, lambda: create(model="moss:1b", messages=[user("hello")]), "moss:1b")


@suite.check()
def a_response(url: str) -> None:
    answer = client(url).responses.create(model=CHAT, input="hello", max_output_tokens=TOKENS)
    expect_simulated(answer.output_text)
    expect("output tokens", answer.usage.output_tokens, TOKENS)


@suite.check()
def a_response_in_pieces(url: str) -> None:
    events = list(client(url).responses.create(model=CHAT, input="hello", max_output_tokens=TOKENS, stream=True))
    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    expect("pieces", len(pieces), TOKENS)
    expect_simulated("".join(pieces))
    expect("last event", events[-1].type, "response.completed")
    expect("whole text", events[-1].response.output_text, "".join(pieces))


@suite.check()
def two_responses_meet_the_same_node(url: str) -> None:
    create = client(url).responses.with_raw_response.create
    said = [user("a long question about responses " * 40)]
    first = create(model=CHAT, input=said, max_output_tokens=TOKENS)
    said += [*first.parse().output, user("And then?")]
    second = create(model=CHAT, input=said, max_output_tokens=TOKENS)
    heads = [answer.headers for answer in (first, second)]
    expect("node of the second turn", heads[1]["x-fleet-node"], heads[0]["x-fleet-node"])
    expect("affinity", [head["x-fleet-affinity"] for head in heads], ["new", "session"])


@suite.check()
def a_response_calls_a_function(url: str) -> None:
    tool = {"type": "function", "strict": False, **WEATHER["function"]}
    with client(url).responses.stream(model=CHAT, input="call get_weather", tools=[tool]) as stream:
        response = stream.get_final_response()
    call = response.output[0]
    expect("call", (call.type, call.name, call.arguments), ("function_call", "get_weather", '{"city":"[simulated]"}'))
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}
    told = client(url).responses.create(model=CHAT, input=[user("Weather?"), call, result], max_output_tokens=TOKENS)
    expect_simulated(told.output_text)
