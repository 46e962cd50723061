"""The dashboard over a loaded fleet: what it shows, that it is true, and that it can be worked with.

`warmgate demo` is started for it and ended. What this build has no path for is skipped, and says so.
"""

import argparse
import json
import signal
import sys
import urllib.request
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import crowd
import load
import processes
import replicas
from page import Page
from processes import Failed

TALKERS = 9
BURST = 40
SCREENS = {"desktop": (1280, 900), "phone": (390, 844)}
NARROWEST = 360


class Check:
    def __init__(self, page: Page, admin: str, url: str) -> None:
        self.page, self.admin, self.url = page, admin, url
        self.outcomes = Counter()

    def seen(self, what: str, holds, more: str = "") -> None:
        outcome = "passed" if holds else "failed"
        self.outcomes[outcome] += 1
        print(f"{outcome}  {what}{f': {more}' if more and not holds else ''}", flush=True)

    def skipped(self, what: str, why: str) -> None:
        self.outcomes["skipped"] += 1
        print(f"skipped {what}: {why}", flush=True)

    def told(self, path: str) -> str:
        with urllib.request.urlopen(f"{self.admin}{path}", timeout=10) as answer:
            return answer.read().decode()

    def nodes(self) -> None:
        names = self.page.once("the nodes", "(() => { const all = [...document.querySelectorAll('#nodes tbody th')];"
                               "return all.length === 3 && all.map((it) => it.firstChild.textContent); })()")
        self.seen("each node has its row", names == ["sim-a", "sim-b", "sim-c"], str(names))
        self.seen("the feed is live", self.page.once("live", "document.querySelector('#feed-text').textContent === 'live'"))

    def under_way(self) -> None:
        text = self.page.once("a request under way", "(() => { const row = document.querySelector('#live tbody th');"
                              "return row && row.parentElement.textContent; })()")
        self.seen("a request that is under way is shown", "sim-" in text or "waits here" in text, text)

    def receipt(self) -> None:
        self.page.once("a decision", "document.querySelector('#recent tbody button')")
        # The keyboard's way: focus, then Enter.
        self.page.run("[...document.querySelectorAll('#recent tbody tr')].find((row) => /kept/.test(row.textContent))"
                      ".querySelector('button').focus()")
        self.page.browser.switch_to.active_element.send_keys("\ue007")
        self.page.once("a receipt", "document.querySelector('#receipt').open && !!document.querySelector('.parts tfoot')")
        columns = self.page.run(
            "[...document.querySelectorAll('.parts tfoot [data-score]')].map((cell, at) => ({score: +cell.dataset.score,"
            "parts: [...document.querySelectorAll('.parts tbody tr')].map((row) => +row.querySelectorAll('[data-points]')[at].dataset.points)}))")
        self.seen("a receipt has eight signals for each candidate", columns and all(len(it["parts"]) == 8 for it in columns))
        self.seen("they add up to the score", all(abs(sum(it["parts"]) - it["score"]) < 1e-6 for it in columns), str(columns))
        self.seen("some of them are negative", any(part < 0 for it in columns for part in it["parts"]))
        bars = self.page.run("document.querySelectorAll('.parts tbody svg rect').length")
        self.seen("each signal has its bar", bars == 8, str(bars))
        self.page.browser.switch_to.active_element.send_keys("\ue00c")
        self.seen("Escape closes it", self.page.once("the receipt closed", "!document.querySelector('#receipt').open"))

    def drain(self) -> None:
        if "/drain" not in self.told("/help"):
            self.skipped("drain by button", "this build has no such path")
            self.seen("then there are no buttons for it", self.page.run("document.querySelectorAll('#nodes tbody td button').length") == 0)
            return
        button = "document.querySelector('#nodes tbody tr td button')"
        self.page.once("a drain button", button)
        # Who comes back is given load gradually at first.
        for word, then in (("Drain", "draining"), ("Resume", "up|slow start")):
            label = self.page.run(f"{button}.textContent")
            self.page.run(f"{button}.click()")
            state = self.page.once(f"sim-a {then}", f"/{then}/.test(document.querySelector('#nodes tbody tr td').textContent)")
            drains = [node["draining"] for node in json.loads(self.told("/fleet/status"))["nodes"] if node["name"] == "sim-a"]
            self.seen(f"{word.lower()} by button takes effect", label == word and state and drains == [word == "Drain"])
        self.seen("what came of it is said", self.page.run("document.querySelector('#act').textContent.length > 0"))

    def numbers(self) -> None:
        """Once nothing is under way, the page, the metrics and the receipts say the same."""
        self.page.once("an idle fleet", "feed.told.in_flight === 0 && feed.told.waiting === 0")
        load.rest(2)
        shown = self.page.run("feed.told.hour.total")
        tile = self.page.texts("#tiles .big")[3].replace(",", "")
        counted = sum_of(self.told("/metrics"), "warmgate_requests_total{")
        self.seen("requests on the page equal those in the metrics", float(tile) == counted == shown["requests"], f"{tile} {counted}")
        moved = sum_of(self.told("/metrics"), "warmgate_lost_warmth_total{")
        self.seen("lost warmth equals that in the metrics", shown["moved"] == moved, f"{shown['moved']} {moved}")
        latest = json.loads(self.told("/fleet/receipts?limit=1"))[0]
        recent = self.page.run("feed.told.recent[0]")
        same = all(recent[field] == latest[field] for field in ("request_id", "node", "score", "affinity"))
        self.seen("the latest decision equals its receipt", same, f"{recent} {latest}")

    def node(self) -> None:
        self.page.run("document.querySelector('#nodes tbody th button').focus()")
        self.page.browser.switch_to.active_element.send_keys("\ue007")
        text = self.page.once("a node's dialog", "document.querySelector('#receipt').open && document.querySelector('#receipt').textContent")
        self.seen("a node opens with its models and requests", "qwen3.6:27b" in text and "First token" in text, text)
        self.page.browser.switch_to.active_element.send_keys("\ue00c")

    def find(self) -> None:
        wanted = json.loads(self.told("/fleet/receipts?limit=1"))[0]["request_id"]
        self.page.run("document.querySelector('#find-id').focus()")
        self.page.browser.switch_to.active_element.send_keys(wanted + "\ue007")
        self.page.once("the wanted receipt", f"document.querySelector('#receipt').open && document.querySelector('#receipt-body').textContent.includes({json.dumps(wanted)})")
        self.seen("a request is found by its id", True)
        self.page.browser.switch_to.active_element.send_keys("\ue00c")

    def lost_warmth(self) -> None:
        lead = self.page.texts("#lost-lead")[0]
        moved = self.page.run("feed.told.hour.total.moved")
        self.seen("lost warmth has its answer", str(moved) in lead if moved else "No conversation" in lead, lead)
        self.seen("slow nodes have theirs", len(self.page.texts("#slow-lead")[0]) > 0)

    def narrow(self) -> None:
        self.page.screen(NARROWEST, 800)
        load.rest(1)
        width = self.page.run("document.documentElement.scrollWidth")
        self.seen(f"nothing sticks out at {NARROWEST} pixels", width <= NARROWEST, str(width))
        self.page.screen(1280, 900)

    def quiet(self) -> None:
        complaints = self.page.complaints()
        self.seen("the browser has nothing to complain about", not complaints, "; ".join(complaints))

    def pictures(self, folder: Path) -> None:
        for name, (width, height) in SCREENS.items():
            for dark in (False, True):
                self.page.screen(width, height, dark)
                self.page.run("document.activeElement.blur()")
                load.rest(2)
                self.page.run("scrollTo(0, 0)")
                self.page.picture(folder / f"dashboard-{name}-{'dark' if dark else 'light'}.png")
        self.page.screen(1280, 900)
        load.rest(1)
        self.page.run("[...document.querySelectorAll('#recent tbody tr')].find((row) => /kept/.test(row.textContent)).querySelector('button').click()")
        load.rest(2)
        self.page.picture(folder / "receipt.png")
        self.page.run("document.querySelector('#receipt').close()")
        self.page.run("document.querySelector('#recent-h').scrollIntoView()")
        load.rest(2)
        self.page.picture(folder / "decisions.png")
        self.page.run("scrollTo(0, 0)")


def sum_of(metrics: str, start: str) -> float:
    return sum(float(line.rsplit(" ", 1)[1]) for line in metrics.splitlines() if line.startswith(start))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--warmgate", type=Path, required=True)
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    # Out of time: leave by the way that ends what was started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("FAILED: out of time"))
    try:
        with ExitStack() as stack:
            # By every loopback address, so that it can stand for many nodes.
            arguments = ["demo", "--listen", "0.0.0.0:0", "--admin", "127.0.0.1:0"]
            served = processes.warmgate(stack, options.warmgate, arguments, options.home / "warmgate.log")
            served.url = served.url.replace("0.0.0.0", "127.0.0.1")
            check = Check(Page(stack, f"{served.admin}/"), served.admin, served.url)
            usual = load.Load(served.url, TALKERS, seed=1)
            check.nodes()
            check.under_way()
            load.rest(120 if options.pictures else 8)
            burst = load.Load(served.url, BURST, seed=2)
            load.rest(20 if options.pictures else 8)
            burst.stop()
            check.receipt()
            check.find()
            check.node()
            check.drain()
            if options.pictures:
                load.rest(45)
                check.pictures(options.pictures)
            check.narrow()
            usual.stop()
            check.numbers()
            check.lost_warmth()
            check.quiet()
            crowd.check(stack, check, options)
            replicas.check(stack, check, options)
            check.quiet()
            outcomes = check.outcomes
    except Failed as failure:
        print(f"failed  the check itself: {failure}")
        return 1
    print(f"{outcomes['passed']} passed, {outcomes['failed']} failed, {outcomes['skipped']} skipped")
    return 1 if outcomes["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
