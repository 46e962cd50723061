"""LangChain's chat models, which sit on the official clients."""

from langchain_core.language_models import BaseChatModel
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI

from suite import Suite, expect, expect_simulated, expect_that

suite = Suite("langchain")

MODEL = "qwen3.6:27b"
TOKENS = 12


def over_ollama(url: str) -> ChatOllama:
    return ChatOllama(model=MODEL, base_url=url, num_predict=TOKENS, client_kwargs={"timeout": 30})


def over_openai(url: str) -> ChatOpenAI:
    return ChatOpenAI(
        model=MODEL, base_url=f"{url}/v1", api_key="none", max_tokens=TOKENS, timeout=30, max_retries=0
    )


def talk(chat: BaseChatModel) -> None:
    whole = chat.invoke("hello")
    expect_simulated(whole.content)
    expect("output tokens", whole.usage_metadata["output_tokens"], TOKENS)
    pieces = [piece.content for piece in chat.stream("hello")]
    expect_that(len([piece for piece in pieces if piece]) > 1, "pieces", pieces, "more than one")
    expect("text", "".join(pieces), whole.content)


@suite.check()
def chat_and_stream_over_ollama(url: str) -> None:
    talk(over_ollama(url))


@suite.check()
def chat_and_stream_over_openai(url: str) -> None:
    talk(over_openai(url))
