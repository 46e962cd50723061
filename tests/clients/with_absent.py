"""What is not there yet is refused as such, in the way that its client understands."""

import openai

from features import ABSENT
from suite import Mismatch, Suite, expect_error

suite = Suite("absent")

MODEL = "qwen3.6:27b"


def response(url: str) -> object:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=30)
    return client.responses.create(model=MODEL, input="hello")


CALLS = {"responses": (openai.NotFoundError, response)}


def refused(feature: str) -> None:
    def run(url: str) -> None:
        kind, call = CALLS[feature]
        try:
            expect_error(kind, lambda: call(url), "404")
        except Mismatch as mismatch:
            raise Mismatch(f"{mismatch}; if {feature} is served now, take it out of features.py") from None

    run.__name__ = f"{feature}_is_refused"
    suite.check()(run)


for feature in ABSENT:
    refused(feature)
