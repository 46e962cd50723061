"""Two replicas over one Redis, as the page shows them: who is heard, and that Redis is gone and is back.

Where there is no `redis-server` this is skipped, and says so.
"""

import shutil
import socket
from contextlib import ExitStack

import processes

REDIS = "redis-server"


def check(stack: ExitStack, check, options) -> None:
    alone = check.page.run("document.querySelector('#cluster-box').hidden && document.querySelector('#cluster-link').hidden")
    check.seen("without a cluster there is no panel for it", alone)
    if not shutil.which(REDIS):
        check.skipped("replicas", f"there is no {REDIS}")
        return
    port = free_port()
    file = options.home / "replicas.yaml"
    file.write_text(settings(check.url, port))
    redis = start(options, port)
    served = [serve(stack, options, file, n) for n in (1, 2)]
    page = check.page
    page.browser.get(f"{served[0].admin}/")
    lead = page.once("two replicas that agree", said("shared", "1 other replica"))
    check.seen("replicas that agree are told so, with what Redis takes", "Redis' last answer took" in lead, lead)
    rows = page.once("the other replica", "(() => { const all = [...document.querySelectorAll('#cluster tbody tr')];"
                     "return all.length === 2 && all.map((row) => row.textContent); })()")
    check.seen("this one comes first, and the other was just heard", "this one" in rows[0] and "just now" in rows[1], str(rows))
    check.seen("the address is shown without what is secret", f"127.0.0.1:{port}" in page.texts("#cluster-note")[0])
    check.narrow()

    processes.end(redis)
    lead = page.once("that Redis is gone", said("on its own", "goes by what it knows"))
    check.seen("that Redis is gone is told in words", "connection is refused" in lead or "broken" in lead, lead)
    check.seen("and at the top", "without its Redis" in page.texts("#state")[0])
    silent = page.once("the other one silent", "/silent/.test(document.querySelector('#cluster tbody').textContent)")
    check.seen("who is not heard any more is still shown", silent)
    redis = start(options, port)
    stack.callback(processes.end, redis)
    check.seen("that it is back is seen", page.once("replicas that agree again", said("shared", "1 other replica")))
    if options.pictures:
        page.run("document.querySelector('#cluster-h').scrollIntoView()")
        page.picture(options.pictures / "replicas.png")


def said(word: str, more: str) -> str:
    """A script: what the panel's first line says, once it says that."""
    return (f"(() => {{ const text = document.querySelector('#cluster-lead').textContent;"
            f"return text.includes('{word}') && text.includes('{more}') && text; }})()")


def start(options, port: int):
    """Until it is ended."""
    log = (options.home / "redis.log").open("w")
    return processes.subprocess.Popen(
        [REDIS, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
        cwd=options.home, stdin=processes.subprocess.DEVNULL, stdout=log, stderr=log, text=True)


def serve(stack: ExitStack, options, file, n: int) -> processes.Warmgate:
    return processes.warmgate(stack, options.warmgate, ["run", "-c", str(file)], options.home / f"replica-{n}.log")


def settings(node: str, port: int) -> str:
    return "\n".join([
        "listen: [{address: 127.0.0.1:0}]", "admin: {address: 127.0.0.1:0}", "log: {access: off}",
        f"cluster: {{redis: \"redis://127.0.0.1:{port}\"}}",
        "upstreams:", f"  - {{name: gpu-1, url: \"{node}\", engine: ollama, slots: 4}}", "",
    ])


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
