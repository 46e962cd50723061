"""The official clients against the embedded fleet, through Warmgate. Only the base URL is ours.

`warmgate demo` is started for it, unless a URL is given, and ended.
"""

import argparse
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import processes
import with_anthropic
import with_langchain
import with_ollama
import with_openai
from processes import Failed
from suite import report

SUITES = [
    with_ollama.suite,
    with_openai.suite,
    with_anthropic.suite,
    with_langchain.suite,
]
SCRIPTS = ["with_ollama.mjs", "with_openai.mjs"]
SCRIPT_SECONDS_MAX = 60


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--warmgate", type=Path, required=True)
    options = parser.parse_args()
    # Out of time: leave by the way that ends what was started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("FAILED: out of time"))
    outcomes = Counter()
    try:
        with ExitStack() as stack:
            arguments = ["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
            url = processes.warmgate(stack, options.warmgate, arguments, options.home / "warmgate.log").url
            for suite in SUITES:
                outcomes += suite.run(url)
            for script in SCRIPTS:
                outcomes += run_script(options.home / "npm" / script, url)
    except Failed as failure:
        report("failed", "the check itself", str(failure))
        outcomes["failed"] += 1
    print(f"{outcomes['passed']} passed, {outcomes['failed']} failed, {outcomes['skipped']} skipped")
    return 1 if outcomes["failed"] else 0


def run_script(script: Path, url: str) -> Counter:
    """A suite in JavaScript; the first word of each line that it prints is an outcome."""
    command = ["node", str(script), url]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    try:
        finished = subprocess.run(command, **pipes, text=True, timeout=SCRIPT_SECONDS_MAX)
    except subprocess.TimeoutExpired as late:
        raise Failed(str(late)) from None
    print(finished.stdout, end="", flush=True)
    outcomes = Counter(line.split()[0] for line in finished.stdout.splitlines())
    if finished.returncode != 0 or not outcomes:
        raise Failed(f"{script.name} ended with {finished.returncode} after {outcomes.total()} checks")
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
