"""Checks that run one after another, each with a line that says how it went.

A check is a function; its name, spoken, is what it shows. It passes if it raises nothing.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


class Mismatch(Exception):
    """What was expected and what came instead."""


def expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise Mismatch(f"{what}: expected {wanted!r}, got {got!r}")


def expect_that(holds: bool, what: str, got: object, wanted: str) -> None:
    if not holds:
        raise Mismatch(f"{what}: expected {wanted}, got {got!r}")


def expect_simulated(text: str | None) -> None:
    """The words with which every answer of the embedded fleet begins."""
    expect_that((text or "").startswith("[simulated] "), "text", text, "text that begins with '[simulated] '")


def expect_error(kind: type[Exception], call: Callable[[], object], words: str) -> Exception:
    """The call must fail in this way, and say so in these words."""
    try:
        got = call()
    except kind as error:
        expect_that(words in str(error), "error", str(error), f"words like {words!r}")
        return error
    raise Mismatch(f"expected {kind.__name__}, got {got!r}")


@dataclass
class Suite:
    """The checks of one client."""

    client: str
    checks: list[tuple[str, Callable[[str], None]]] = field(default_factory=list)

    def check(self) -> Callable:
        """Marks a check."""

        def add(run: Callable[[str], None]) -> Callable[[str], None]:
            self.checks.append((run.__name__.replace("_", " "), run))
            return run

        return add

    def run(self, url: str) -> Counter:
        outcomes = Counter()
        for name, run in self.checks:
            outcome, reason = attempt(run, url)
            outcomes[outcome] += 1
            report(outcome, f"{self.client}: {name}", reason)
        return outcomes


def attempt(run: Callable[[str], None], url: str) -> tuple[str, str]:
    try:
        run(url)
    except Mismatch as mismatch:
        return "failed", str(mismatch)
    # Whatever a client raises is what its user would see.
    except Exception as error:
        return "failed", f"expected no error, got {type(error).__name__}: {error}"
    return "passed", ""


def report(outcome: str, name: str, reason: str) -> None:
    print(f"{outcome:<8} {name}" + (f" ({reason})" if reason else ""), flush=True)
