// Where the numbers come from: the stream of snapshots, or one at a time where there is none; and what is sent.

const TOKEN = "warmgate.token";
const QUIET = 5000;
// For so long what came of an order is seen.
const SAID_FOR = 12000;
const feed = { told: null, paused: false, canDrain: false, heard: 0 };

// A request with the token, if there is one. `null`: no answer; the token is asked for where it is wanted.
async function ask(path, options) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...(options && options.headers), ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  try {
    const answer = await fetch(path, { cache: "no-store", ...options, headers });
    if (answer.status !== 401) return answer;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return null;
  }
  await askForToken();
  return ask(path, options);
}

function askForToken() {
  sessionStorage.removeItem(TOKEN);
  if (!$("token").open) $("token").showModal();
  return new Promise((resolve) => $("token").addEventListener("close", resolve, { once: true }));
}

function draw() {
  const told = feed.told;
  if (!told) return;
  for (const part of [drawState, drawTiles, drawNodes, drawSlow, drawLost, drawDecisions, drawHour, drawLive, drawSessions, drawModels, drawCluster, drawTenants]) part(told);
}

const LEAVING = {
  stopping: "This process is stopping: it takes no new requests, and those that run may finish.",
  "handed over": "Another process has taken over. What runs here may finish; open this page again to see the new one.",
  cutting: "This process is stopping, and its time is over: what still runs is cut.",
};

function drawState(told) {
  const up = told.nodes.filter((node) => node.standing.state === "up").length;
  const drains = told.nodes.filter((node) => node.draining).length;
  const ready = told.ready === true;
  const serves = told.process.stage === "serving";
  const word = serves ? (ready ? "Ready" : "Not ready") : plain(told.process.stage).replace(/^./, (letter) => letter.toUpperCase());
  const alone = told.cluster && !told.cluster.up;
  show($("state"), [up, told.nodes.length, word, drains, told.simulated, alone], () => [make("b", {}, word), `, ${up} of ${many(told.nodes.length, "node")} up${drains ? `, ${count(drains)} draining` : ""}${alone ? ", without its Redis" : ""}${told.simulated ? ", simulated" : ""}`]);
  $("banner").hidden = ready && serves;
  if (!ready || !serves) show($("banner"), LEAVING[told.process.stage] || told.ready.reason);
  $("about").textContent = `Warmgate ${told.version}, policy ${told.policy}, running for ${span(told.at_ms - told.process.since_ms)}. ≈ marks an estimate.`;
}

function take(text) {
  feed.told = JSON.parse(text);
  feed.heard = Date.now();
  if (!feed.paused) draw();
}

function tell(text, live) {
  $("feed-text").textContent = text;
  $("feed").classList.toggle("live", live);
}

// Reads the stream until it ends. True: something came.
async function listen() {
  const stop = new AbortController();
  const watch = setInterval(() => Date.now() - feed.heard > QUIET && stop.abort(), 1000);
  let came = false;
  try {
    feed.heard = Date.now();
    const answer = await ask("/fleet/events", { signal: stop.signal });
    if (!answer || !answer.ok || !answer.body) return false;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return came;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      const last = events.filter((event) => event.startsWith("data: ")).pop();
      if (last) {
        take(last.slice(6));
        came = true;
        tell(feed.paused ? "paused" : "live", !feed.paused);
      }
    }
  } catch {
    return came;
  } finally {
    clearInterval(watch);
    stop.abort();
  }
}

async function poll() {
  const answer = await ask("/fleet/snapshot");
  if (answer && answer.ok) {
    take(await answer.text());
    tell("every few seconds", true);
  } else tell(answer ? `no answer (${answer.status})` : "not connected", false);
}

// Nothing is asked while nobody looks.
async function run() {
  for (;;) {
    if (document.hidden) await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
    if (!(await listen())) {
      await poll();
      await new Promise((resolve) => setTimeout(resolve, 3000));
    }
  }
}

// What this port answers says whether it takes orders, and keeps reloads.
async function lookForOrders() {
  const answer = await ask("/help");
  const help = answer && answer.ok ? await answer.text() : "";
  feed.canDrain = help.includes("/drain");
  if (feed.canDrain) draw();
  if (help.includes("/fleet/reloads")) keepReloads();
}

async function keepReloads() {
  for (;;) {
    const answer = document.hidden ? null : await ask("/fleet/reloads");
    if (answer && answer.ok) drawReloads((await answer.json()).reloads || [], Date.now());
    await new Promise((resolve) => setTimeout(resolve, 10000));
  }
}

async function drain(name, on) {
  const note = $("act");
  const answer = await ask(`/fleet/nodes/${encodeURIComponent(name)}/${on ? "drain" : "resume"}`, { method: "POST" });
  let text = answer ? `${name}: refused with ${answer.status}` : `${name}: no answer`;
  const told = answer && (await answer.json().catch(() => null));
  if (told && told.lines) text = told.lines.join(" ");
  note.classList.toggle("bad", !answer || !answer.ok);
  note.textContent = text;
  note.hidden = false;
  clearTimeout(drain.fades);
  drain.fades = setTimeout(() => { note.hidden = true; }, SAID_FOR);
}

function pause() {
  feed.paused = !feed.paused;
  $("pause").setAttribute("aria-pressed", String(feed.paused));
  $("pause").textContent = feed.paused ? "Go on" : "Pause";
  tell(feed.paused ? "paused" : "live", !feed.paused);
  if (!feed.paused) draw();
}

$("pause").addEventListener("click", pause);
$("nodes-find").addEventListener("input", draw);
$("find-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = $("find-id").value.trim();
  if (id) openReceipt(id);
});
$("receipt-close").addEventListener("click", () => $("receipt").close());
$("receipt").addEventListener("click", (event) => event.target === $("receipt") && $("receipt").close());
$("token").addEventListener("cancel", (event) => event.preventDefault());
$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, $("token-value").value);
  $("token-value").value = "";
  $("token").close();
});
window.addEventListener("resize", draw);
run();
lookForOrders();
