"""Conversations of several turns, held at once, and now and then more of them than the fleet has room for."""

import json
import random
import threading
import time
import urllib.error
import urllib.request

WORDS = "sun moss river stone light fern wind harbour copper maple north signal".split()
MODELS = ["qwen3.6:27b"] * 4 + ["llama3.2:3b"]
ANSWER_SECONDS_MAX = 120


class Load:
    """Talkers that begin new conversations until they are told to stop."""

    def __init__(self, url: str, talkers: int, seed: int) -> None:
        self.url = url
        self.answered = 0
        self.ended = threading.Event()
        chances = [random.Random(seed * 1000 + n) for n in range(talkers)]
        self.threads = [threading.Thread(target=self.talk, args=(chance,), daemon=True) for chance in chances]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Returns when every talker has had its last answer."""
        self.ended.set()
        for thread in self.threads:
            thread.join(ANSWER_SECONDS_MAX)

    def talk(self, chance: random.Random) -> None:
        while not self.ended.is_set():
            model = chance.choice(MODELS)
            messages = [{"role": "system", "content": text(chance, 60)}]
            for _ in range(chance.randint(2, 7)):
                messages.append({"role": "user", "content": text(chance, chance.choice([40, 200, 900]))})
                try:
                    answer = chat(self.url, model, messages, chance.choice([30, 60, 120]))
                except (urllib.error.URLError, TimeoutError, ConnectionError):
                    break
                self.answered += 1
                messages.append({"role": "assistant", "content": answer})
                if self.ended.wait(chance.uniform(0, 1.5)):
                    return


def chat(url: str, model: str, messages: list[dict], tokens: int) -> str:
    body = json.dumps({"model": model, "messages": messages, "options": {"num_predict": tokens}}).encode()
    request = urllib.request.Request(f"{url}/api/chat", body, {"Content-Type": "application/json"})
    said = ""
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX) as answer:
        for line in answer:
            said += json.loads(line).get("message", {}).get("content", "")
    return said


def text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(words))


def rest(seconds: float) -> None:
    time.sleep(seconds)
