"""Two hundred nodes, tenants with limits, and a configuration that changes while somebody looks.

The nodes are the embedded fleet once more, by two hundred loopback addresses.
"""

import json
import subprocess
import urllib.error
import urllib.request
from contextlib import ExitStack

import load
import processes

NODES = 200
# Nobody listens there.
DOWN = "http://127.0.0.1:9"
RPM = 4


def check(stack: ExitStack, check, options) -> None:
    file = options.home / "crowd.yaml"
    port = check.url.rsplit(":", 1)[1]
    key = "a-key-of-the-check-only-0123456789abcdef"
    hashed = hash_of(options.warmgate, key)
    file.write_text(settings(port, hashed, RPM))
    served = serve(stack, options.warmgate, file, options.home / "crowd.log")
    for _ in range(RPM + 2):
        ask(served.url, key)
    check.admin = served.admin
    page = check.page
    page.browser.get(f"{served.admin}/")
    page.once("all the nodes", f"document.querySelectorAll('#nodes tbody tr').length === {NODES}")
    page.once("a square for each", f"document.querySelectorAll('#map .cell').length === {NODES}")
    label = page.once("the map in words", "/1 down/.test(document.querySelector('#map').getAttribute('aria-label'))")
    check.seen("two hundred nodes are shown, and told in words", label)
    first = page.texts("#nodes tbody th")[0]
    check.seen("a node in trouble comes first", first.startswith("gpu-200"), first)
    tenant = page.texts("#tenants tbody tr")[0]
    check.seen("a tenant is shown against its limits", tenant.startswith("research") and f"of {RPM}" in tenant and "at its limit" in tenant, tenant)
    used = page.run("feed.told.tenants[0].requests_last_minute")
    check.seen("as the status tells it", used == json.loads(check.told("/fleet/status"))["tenants"][0]["requests_last_minute"] == RPM, str(used))

    file.write_text(settings(port, hashed, 600))
    change = page.once("a reload", "(() => { const row = document.querySelector('#reloads .change'); return row && row.textContent; })()")
    check.seen("a reload shows what it changed", "tenants[research].limits.rpm" in change and "− 4" in marked(page), change)
    file.write_text("upstreams: [")
    refused = page.once("a bad file", "!document.querySelector('#bad-file').hidden")
    check.seen("a bad file is said at the top", refused)
    check.narrow()
    if options.pictures:
        file.write_text(settings(port, hashed, 600))
        page.once("a good file", "document.querySelector('#bad-file').hidden")
        page.run("scrollTo(0, 0)")
        load.rest(2)
        page.picture(options.pictures / "dashboard-200-nodes.png")


def serve(stack: ExitStack, warmgate, file, log) -> processes.Warmgate:
    """On a busy machine two hundred nodes may not have answered yet when it says so first."""
    process = processes.spawn(stack, [str(warmgate), "run", "-c", str(file)], log)
    url = processes.line_after(process, "warmgate: listening on ")
    admin = processes.line_after(process, "warmgate: admin on ")
    processes.await_answer(process, f"{url}/readyz", log)
    return processes.Warmgate(url, admin)


def marked(page) -> str:
    """The old value as it is seen, its mark included."""
    return page.run("(() => { const old = document.querySelector('#reloads del');"
                    "return getComputedStyle(old, '::before').content.replaceAll('\"', '') + old.textContent; })()")


def settings(port: str, hashed: str, rpm: int) -> str:
    """All nodes but the last are the embedded fleet."""
    nodes = [f"{{name: gpu-{n:03}, url: \"{address(n, port)}\", engine: ollama, slots: 4}}" for n in range(1, NODES + 1)]
    tenants = f"[{{name: research, keys: [\"{hashed}\"], limits: {{rpm: {rpm}, tpm: 200000, concurrent: 8}}}}]"
    return "\n".join([
        "listen: [{address: 127.0.0.1:0}]", "admin: {address: 127.0.0.1:0}", "log: {access: off}",
        "upstreams:", *[f"  - {node}" for node in nodes], f"tenants: {tenants}", "",
    ])


def address(n: int, port: str) -> str:
    return DOWN if n == NODES else f"http://127.0.1.{n}:{port}"


def hash_of(warmgate, key: str) -> str:
    told = subprocess.run([str(warmgate), "hash-key"], input=key, capture_output=True, text=True, check=True)
    return next(word.strip('"[]- ') for word in told.stdout.split() if "sha256:" in word)


def ask(url: str, key: str) -> None:
    body = json.dumps({"model": "qwen3.6:27b", "messages": [{"role": "user", "content": "moss"}], "options": {"num_predict": 8}})
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{url}/api/chat", body.encode(), headers)
    try:
        urllib.request.urlopen(request, timeout=60).read()
    except urllib.error.HTTPError as refused:
        refused.read()
