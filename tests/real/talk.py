"""A conversation held by the official OpenAI client, with what the server counted for each turn."""

import time
from dataclasses import dataclass

from openai import OpenAI

from processes import Failed
from server import MODEL

ANSWER_TOKENS_MAX = 12

# Long enough that a cached prompt shows, short enough for one slow core.
OPENING = (
    " ".join(
        f"Fact {n}: moss number {n} grows on stone {n * 7 % 13}, north of the {place}."
        for n, place in enumerate(["river", "wall", "wood", "mill", "bridge"] * 4)
    )
    + " Which of these facts is the most surprising?"
)


@dataclass
class Turn:
    """One answer: where it came from, and the server's own counts."""

    node: str
    affinity: str
    prompt_tokens: int
    cached_tokens: int
    first_token_seconds: float
    text: str


class Talk:
    """Remembers what was said, as every chat client does."""

    def __init__(self, url: str) -> None:
        self.client = OpenAI(base_url=f"{url}/v1", api_key="none", timeout=120, max_retries=0)
        self.messages: list[dict[str, str]] = []

    def say(self, text: str) -> Turn:
        self.messages.append({"role": "user", "content": text})
        turn = self.ask()
        self.messages.append({"role": "assistant", "content": turn.text})
        return turn

    def ask(self) -> Turn:
        """Sends the messages as they are and reads the streamed answer."""
        started = time.monotonic()
        answer = self.client.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=self.messages,
            max_tokens=ANSWER_TOKENS_MAX,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        first, text, usage = None, "", None
        for chunk in answer.parse():
            if chunk.choices and chunk.choices[0].delta.content:
                first = first or time.monotonic()
                text += chunk.choices[0].delta.content
            usage = chunk.usage or usage
        if usage is None:
            raise Failed("a stream without the usage that was asked for")
        return Turn(
            node=answer.headers.get("x-fleet-node", "-"),
            affinity=answer.headers.get("x-fleet-affinity", "-"),
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.prompt_tokens_details.cached_tokens,
            first_token_seconds=(first or time.monotonic()) - started,
            text=text,
        )
