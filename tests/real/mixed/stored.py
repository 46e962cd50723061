"""Stored responses: gone on from by the node that made them, and by no other."""

import openai

from ask import TOKENS, openai_client


def problems(url: str, model: str, other_model: str) -> list[str | None]:
    create = openai_client(url).responses.with_raw_response.create
    first = create(model=model, input="What grows on a stone? " * 40, max_output_tokens=TOKENS)
    before = first.parse()
    second = create(model=model, input="And on two?", previous_response_id=before.id, max_output_tokens=TOKENS)
    node, usage = second.headers.get("x-fleet-node"), second.parse().usage
    print(f"responses  {model} on {node}: {usage.input_tokens_details.cached_tokens} of {usage.input_tokens} cached")
    return [
        None if node == first.headers.get("x-fleet-node") else f"responses: the second turn went to {node!r}",
        None
        if usage.input_tokens_details.cached_tokens > before.usage.input_tokens / 2
        else f"responses: {usage.input_tokens_details.cached_tokens} tokens were cached of what {before.usage} left",
        elsewhere_problem(url, other_model, before.id),
    ]


def elsewhere_problem(url: str, model: str, id: str) -> str | None:
    """The id with a model that only another node has."""
    try:
        answer = openai_client(url).responses.create(model=model, input="And on two?", previous_response_id=id)
    except openai.NotFoundError:
        return None
    return f"responses: another node's response was gone on from: {answer.output_text!r}"
