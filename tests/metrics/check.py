"""What Warmgate tells Prometheus, before Prometheus' own tools: its linter, its rules, and its queries."""

import argparse
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

from processes import Failed, Warmgate, await_answer, spawn, warmgate

KEY = "key-of-the-tenant-in-the-check"
COLLECTED_SECONDS = 25
CLIENTS = 3
GRAFANA = Path("conf/grafana")

# What nothing that happens here can show.
EMPTY = {
    "Models that differ between nodes",
    "Went on elsewhere",
    "Failed attempts by node",
    "What is wrong with Redis",
    "Calls to Redis",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--warmgate", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        with ExitStack() as stack:
            check(stack, arguments.home, arguments.warmgate)
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")


def check(stack: ExitStack, home: Path, program: Path) -> None:
    binaries = home / "package/usr/bin"
    promtool(binaries, "the alert rules are good ones", "check", "rules", str(GRAFANA / "alerts.yaml"))
    fleet = warmgate(stack, program, ["demo"], home / "demo.log")
    gate = warmgate(stack, program, ["run", "-c", str(configuration(home, fleet))], home / "warmgate.log")
    prometheus = start_prometheus(stack, home, binaries, gate)
    ask_all_sorts(gate)
    text = told(gate.admin + "/metrics")
    promtool(binaries, f"{len(text.splitlines())} lines of metrics are clean", "check", "metrics", words=text)
    until = time.monotonic() + COLLECTED_SECONDS
    with ThreadPoolExecutor(CLIENTS) as clients:
        while time.monotonic() < until:
            list(clients.map(ask_all_sorts, [gate] * CLIENTS))
    ask_queries(prometheus)


def configuration(home: Path, fleet: Warmgate) -> Path:
    file = home / "warmgate.yaml"
    file.write_text(
        f"""
listen: [{{address: "127.0.0.1:0"}}]
admin: {{address: "127.0.0.1:0"}}
upstreams:
  - {{name: fleet, url: "{fleet.url}", engine: ollama, memory: 64GiB, slots: 1}}
  - {{name: gone, url: "http://127.0.0.1:9", engine: ollama}}
telemetry: {{interval: 1s}}
admission: {{engine_queue: 0}}
tenants:
  - {{name: research, keys: ["sha256:{sha256(KEY.encode()).hexdigest()}"]}}
  - {{name: guests, keys: ["sha256:{sha256(b"guest").hexdigest()}"], limits: {{rpm: 1}}}}
"""
    )
    return file


def promtool(binaries: Path, what: str, *arguments: str, words: str | None = None) -> None:
    run = subprocess.run([binaries / "promtool", *arguments], input=words, text=True, capture_output=True)
    said = (run.stdout + run.stderr).strip()
    if run.returncode != 0 or (words and said):
        raise Failed(f"promtool {' '.join(arguments)}:\n{said}")
    print(f"ok: {what}")


def start_prometheus(stack: ExitStack, home: Path, binaries: Path, gate: Warmgate) -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    target = urllib.parse.urlparse(gate.admin).netloc
    file = home / "prometheus.yml"
    rules = (GRAFANA / "alerts.yaml").resolve()
    scrape = f"scrape_configs: [{{job_name: warmgate, static_configs: [{{targets: ['{target}']}}]}}]"
    file.write_text(f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{rules}']\n{scrape}\n")
    data = home / f"data-{time.time_ns()}"
    command = [str(binaries / "prometheus"), f"--config.file={file}", f"--storage.tsdb.path={data}"]
    log = home / "prometheus.log"
    process = spawn(stack, [*command, f"--web.listen-address={address}"], log, talks=False)
    await_answer(process, f"http://{address}/-/ready", log)
    return f"http://{address}"


def ask_all_sorts(gate: Warmgate) -> None:
    model = json.loads(told(gate.url + "/api/tags", KEY))["models"][0]["name"]
    messages = [{"role": "user", "content": "hello " * 50}]
    for path in ("/api/chat", "/v1/chat/completions"):
        options = {"stream": True, "max_tokens": 16, "options": {"num_predict": 16}}
        answer = post(gate.url + path, {"model": model, "messages": messages, **options})
        follow = [*messages, {"role": "assistant", "content": said(answer)}, {"role": "user", "content": "and then?"}]
        post(gate.url + path, {"model": model, "messages": follow, **options})
        post(gate.url + path, {"model": "nobody's", "messages": messages})
        post(gate.url + path, {"model": model, "messages": messages, **options}, key="guest")
        post(gate.url + path, {"model": model, "messages": messages}, key="unknown")


def said(answer: str) -> str:
    """What an Ollama stream said in all; of others nothing, which makes a new conversation."""
    lines = [json.loads(line) for line in answer.splitlines() if line.startswith("{")]
    return "".join(line.get("message", {}).get("content", "") for line in lines)


def post(url: str, body: dict, key: str = KEY) -> str:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


def told(url: str, key: str = KEY) -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def ask_queries(prometheus: str) -> None:
    dashboard = json.loads((GRAFANA / "dashboard.json").read_text())
    silent, asked = [], 0
    for panel in dashboard["panels"]:
        answers = [query(prometheus, filled(target["expr"])) for target in panel.get("targets", [])]
        asked += len(answers)
        if answers and not any(has_number(answer) for answer in answers):
            silent.append(panel["title"])
    unexpected = [title for title in silent if title not in EMPTY]
    if unexpected:
        raise Failed(f"panels without anything to show: {unexpected}")
    print(f"ok: {asked} queries of the dashboard have answers; nothing to show here: {', '.join(silent) or 'none'}")
    rules = json.loads(told(prometheus + "/api/v1/rules"))["data"]["groups"][0]["rules"]
    ill = [rule["name"] for rule in rules if rule["health"] != "ok"]
    if ill:
        raise Failed(f"alerts that cannot be worked out: {ill}")
    raised = [rule["name"] for rule in rules if rule["state"] != "inactive"]
    if "WarmgateNodeDown" not in raised:
        raise Failed(f"a node is down and nobody is told; only {raised}")
    print(f"ok: {len(rules)} alerts are worked out; raised or pending: {', '.join(raised)}")


def filled(expression: str) -> str:
    for name, value in (("$__rate_interval", "20s"), ("$__range", "1m")):
        expression = expression.replace(name, value)
    for name in ("$instance", "$node", "$model", "$tenant"):
        expression = expression.replace(name, ".*")
    return expression


def query(prometheus: str, expression: str) -> list:
    url = f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    try:
        return json.loads(told(url))["data"]["result"]
    except urllib.error.HTTPError as error:
        raise Failed(f"{expression}: {error.read().decode()}") from error


def has_number(answer: list) -> bool:
    return any(sample["value"][1] != "NaN" for sample in answer)


if __name__ == "__main__":
    main()
