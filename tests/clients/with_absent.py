"""What is not there yet is refused clearly, in words that its client can show."""

import anthropic
import openai

from features import ABSENT
from suite import Mismatch, Suite, expect_error

suite = Suite("absent")

MODEL = "qwen3.6:27b"
HELLO = [{"role": "user", "content": "hello"}]


def message(url: str) -> object:
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=30)
    return client.messages.create(model=MODEL, max_tokens=8, messages=HELLO)


def response(url: str) -> object:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=30)
    return client.responses.create(model=MODEL, input="hello")


CALLS = {"anthropic": (anthropic.NotFoundError, message), "responses": (openai.NotFoundError, response)}


def refused(feature: str) -> None:
    def run(url: str) -> None:
        kind, call = CALLS[feature]
        try:
            expect_error(kind, lambda: call(url), "no such path here")
        except Mismatch as mismatch:
            raise Mismatch(f"{mismatch}; if {feature} is served now, take it out of features.py") from None

    run.__name__ = f"{feature}_is_refused_clearly"
    suite.check()(run)


for feature in ABSENT:
    refused(feature)
