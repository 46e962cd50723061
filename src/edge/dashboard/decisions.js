// Why turns went where they went: the list, and the whole receipt of one.

const WHY = {
  down: "its node was down", draining: "its node drains", busy: "its node was busy", failed: "its node failed",
  expired: "it was quiet for too long", outscored: "another node was better", unfit: "its node could not serve it",
};

const EXCLUDED = {
  unhealthy: "its health checks fail", breaker_open: "requests failed there", half_open: "another request tries it",
  cooling: "it is busy, and left alone for a while", slow_start: "it has just come back", higher_tier: "a higher tier",
  draining: "it drains", wrong_dialect: "it does not speak this API", lacks_path: "it lacks this path", shares_cache: "it would share the tenant's cached prompts on this path", tried: "it failed in this request",
  too_large: "the model does not fit", lacks_ability: "the model cannot do this", context_too_small: "its window is too small",
  over_limit: "it is over its limit", not_the_maker: "another node made the response",
};

function warmth(affinity) {
  const [text, kind] = {
    session: ["kept its conversation", "warm"], moved: ["moved", "bad"], home: ["at home", "cool"],
    prefix: ["a known beginning", "cool"],
    new: ["a new conversation", ""], none: ["no conversation", ""],
  }[affinity] || [affinity, ""];
  return [text, kind];
}

function because(decision) {
  const [text, kind] = warmth(decision.affinity);
  if (decision.outcome !== "ok" && !decision.node) return [pill(plain(decision.outcome), "bad", "!")];
  if (decision.outcome !== "ok") return [pill(plain(decision.outcome), decision.outcome === "client_gone" ? "hold" : "bad", "!"), " ", pill(text, kind)];
  return decision.lost ? [pill(text, kind, "!"), make("span", { class: "sub" }, WHY[decision.lost.why] || decision.lost.why)] : [pill(text, kind)];
}

function tokens(saved, is_estimate, prompt) {
  const share = prompt ? ` of ${short(prompt)}` : "";
  return saved > 0 ? `${is_estimate ? "≈ " : ""}${short(saved)}${share}` : prompt ? `0${share}` : NO_VALUE;
}

function lead(points_ahead, second) {
  if (Math.abs(points_ahead) < 0.05) return `level with ${second}`;
  return points_ahead > 0 ? `${points(points_ahead, true)} on ${second}` : `${points(-points_ahead)} under ${second}, which is full`;
}

function drawDecisions(told) {
  $("recent-note").textContent = "each line opens its receipt";
  show($("legend"), told.signals, () => [`Bars from left: ${told.signals.map(plain).join(", ")}. Up is for the node, down against it.`]);
  fill($("recent"), told.recent.map((decision) => ({
    key: decision.request_id + decision.wall_ms,
    cells: [
      { of: ago(decision.wall_ms + decision.total_ms, told.at_ms), class: "nowrap dim wide" },
      { of: [decision.node, decision.request_id], class: "name", build: () => [make("button", {
        type: "button", class: "link", on: () => openReceipt(decision.request_id),
        "aria-label": `${decision.node || "no node"}: open the receipt`,
      }, decision.node || "no node")] },
      { of: [decision.affinity, decision.outcome, decision.lost], build: () => because(decision) },
      { of: decision.signals, class: "wide", build: () => decision.signals ? [strip(told.signals, decision.signals)] : [NO_VALUE] },
      { of: [decision.score, decision.runner_up], class: "n", build: () => [points(decision.score), decision.runner_up
        ? make("span", { class: "sub" }, lead(decision.score - decision.runner_up.score, decision.runner_up.node)) : ""] },
      { of: decision.model, class: "wide name" },
      { of: decision.score === null ? NO_VALUE : tokens(decision.saved_tokens, decision.saved_is_estimate, decision.prompt_tokens || decision.prompt_tokens_estimated), class: "n wide" },
      { of: [decision.first_byte_ms, decision.queue_ms], class: "n", build: () => [span(decision.first_byte_ms),
        decision.queue_ms >= 1 ? make("span", { class: "sub" }, `${span(decision.queue_ms)} queued`) : ""] },
    ],
  })), "Nothing was asked yet. The first request shows up here, with its reasons.");
}

async function openReceipt(id) {
  const answer = await ask(`/fleet/receipts/${encodeURIComponent(id)}`);
  const body = $("receipt-body");
  $("receipt-h").textContent = "Receipt";
  if (answer && answer.ok) body.replaceChildren(...receiptView(await answer.json()));
  else body.replaceChildren(make("p", {}, `There is no receipt of ${id}: it is not kept any more, or no such request came to a node.`));
  if (!$("receipt").open) $("receipt").showModal();
}

function receiptView(receipt) {
  const decision = receipt.decision;
  const parts = [make("p", { class: "why" }, sentence(receipt))];
  if (decision) {
    const candidates = decision.candidates.some((row) => row.node === decision.chosen.node) ? decision.candidates : [decision.chosen, ...decision.candidates];
    parts.push(make("h3", {}, "The score, signal by signal"), scoreTable(receipt, candidates));
    const hidden = decision.candidates_in_all - decision.candidates.length;
    if (candidates.length > 3 || hidden > 0) parts.push(...otherCandidates(candidates.slice(3), hidden));
    if (decision.excluded_in_all > 0) parts.push(...excludedView(decision));
  }
  parts.push(make("h3", {}, "Where the time went"), ...timeView(receipt));
  parts.push(make("h3", {}, "Facts"), factsView(receipt));
  if (receipt.attempts.length > 1) parts.push(make("h3", {}, "Attempts"), attemptsView(receipt));
  return parts;
}

function sentence(receipt) {
  const decision = receipt.decision;
  if (!decision) return receipt.node ? `Carried out at ${receipt.node}.` : `No node was asked: ${plain(receipt.outcome)}.`;
  const chosen = decision.chosen;
  let text = `Went to ${chosen.node} with ${points(chosen.score)} points`;
  const second = decision.candidates.find((row) => decision.runner_up && row.node === decision.runner_up.node && row.node !== chosen.node);
  if (second) {
    const gaps = feed.told.signals.filter((name) => name in second.signals).map((name) => [name, chosen.signals[name] - second.signals[name]]);
    const telling = gaps.filter(([, gap]) => Math.abs(gap) >= 0.05).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 3);
    const words = telling.map(([name, gap]) => `${plain(name)} ${points(gap, true)}`).join(", ");
    const ahead = decision.runner_up.behind;
    text += Math.abs(ahead) < 0.05 ? `, level with ${second.node}${words ? `: ${words}` : ""}`
      : ahead > 0 ? `, ${points(ahead)} ahead of ${second.node}: ${words}` : `; ${second.node} had more and no room`;
  } else if (decision.candidates_in_all === 1) text += ", the only node that could serve it";
  text += ". ";
  if (receipt.affinity === "moved" && receipt.lost) {
    const cost = known(receipt.lost.seconds_estimated) ? `, about ${span(receipt.lost.seconds_estimated * 1000)}` : "";
    text += `Its conversation was at ${receipt.lost.from} before: ${WHY[receipt.lost.why] || receipt.lost.why}. About ${count(receipt.lost.tokens_estimated)} tokens were read again${cost}.`;
  } else if (receipt.affinity === "session") text += "It stayed where its conversation is warm.";
  else if (receipt.affinity === "home") text += "Others may have begun its conversation; this is the node where every Warmgate looks for it.";
  else if (receipt.affinity === "prefix") text += "A new conversation with a beginning that this node knows.";
  else if (receipt.affinity === "new") text += "A new conversation.";
  return text;
}

// The chosen node and the two best others, each with its eight parts and their sum.
function scoreTable(receipt, candidates) {
  const chosen = receipt.decision.chosen.node;
  const shown = [...candidates].sort((a, b) => (b.node === chosen) - (a.node === chosen)).slice(0, 3);
  const names = feed.told.signals.filter((name) => name in shown[0].signals);
  const values = shown.flatMap((row) => names.map((name) => row.signals[name]));
  const [least, most] = [Math.min(0, ...values), Math.max(1, ...values)];
  const head = make("tr", {}, make("th", { scope: "col" }, "Signal"), make("th", { scope: "col", class: "bar-cell" }, make("span", { class: "hid" }, "Bar for the chosen node")),
    shown.map((row) => make("th", { scope: "col", class: `n name ${row.node === chosen ? "dot-cell" : ""}` }, row.node)));
  const lines = names.map((name) => make("tr", { "data-signal": name }, make("th", { scope: "row" }, plain(name)),
    make("td", { class: "bar-cell" }, part(shown[0].signals[name], least, most)),
    shown.map((row) => make("td", { class: "n", "data-points": row.signals[name] }, points(row.signals[name], true)))));
  const foot = make("tr", {}, make("th", { scope: "row" }, "Score"), make("td", {}),
    shown.map((row) => make("td", { class: "n", "data-score": row.score }, points(row.score))));
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The score, signal by signal" },
    make("table", { class: "parts" }, make("thead", {}, head), make("tbody", {}, lines), make("tfoot", {}, foot)));
}

function otherCandidates(rest, hidden) {
  const told = rest.map((row) => `${row.node} ${points(row.score)}`);
  if (hidden > 0) told.push(`${count(hidden)} more`);
  return told.length ? [make("p", { class: "aside" }, `Behind them: ${told.join(", ")}.`)] : [];
}

function excludedView(decision) {
  const items = decision.excluded.map((row) => make("li", {}, `${row.node}: ${EXCLUDED[row.reason] || plain(row.reason)}`));
  const hidden = decision.excluded_in_all - decision.excluded.length;
  if (hidden > 0) {
    const by = Object.entries(decision.excluded_by).map(([reason, number]) => `${plain(reason)} ${count(number)}`).join(", ");
    items.push(make("li", {}, `${count(hidden)} more; in all: ${by}`));
  }
  return [make("h3", {}, "Not considered"), make("ul", { class: "plain" }, items)];
}

function timeView(receipt) {
  const at = receipt.times_ms;
  const first = at.first_byte ?? at.total;
  const before = Math.min(first, at.intake + at.queue);
  const steps = [["t0", "reading the request", at.intake], ["t1", "waiting here for a node", at.queue],
    ["t2", "waiting for the first token", Math.max(0, first - before)], ["t3", "the rest of the answer", Math.max(0, at.total - first)]];
  const bar = make("div", { class: "time", "aria-hidden": "true" }, steps.map(([kind, , ms]) => {
    const piece = make("i", { class: kind });
    piece.style.width = `${(100 * ms) / Math.max(1, at.total)}%`;
    return piece;
  }));
  const keys = make("p", { class: "keys" }, steps.map(([kind, words, ms]) => make("span", { class: kind }, `${span(ms)} ${words}`)));
  return [bar, keys, make("p", { class: "aside" }, `${span(at.total)} in all${known(at.connect) ? `; the connection took ${span(at.connect)}` : ""}`)];
}

function factsView(receipt) {
  const told = receipt.tokens;
  const cached = known(told.cached) ? `${count(told.cached)} cached` : `about ${count(told.cached_estimated)} cached (estimate)`;
  const facts = [
    ["Request", receipt.request_id], ["Model", receipt.model], ["Path", receipt.path], ["Outcome", `${receipt.status} ${plain(receipt.outcome)}`],
    ["Conversation", receipt.session || "none"],
    ["Prompt", known(told.prompt) ? `${count(told.prompt)} tokens, ${cached}` : `about ${count(told.prompt_estimated)} tokens (estimate)`],
    ["Answer", known(told.output) ? `${count(told.output)} tokens` : "not told"], ["When", new Date(receipt.wall_ms).toLocaleString("en-GB")],
    ...(receipt.tenant ? [["Tenant", receipt.tenant]] : []), ...(receipt.trace_id ? [["Trace", receipt.trace_id]] : []),
  ];
  return make("dl", { class: "facts" }, facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

function attemptsView(receipt) {
  const rows = receipt.attempts.map((attempt) => make("tr", {}, make("th", { scope: "row", class: "name" }, attempt.node),
    make("td", { class: "n" }, `after ${span(attempt.placed_ms)}`), make("td", {}, attempt.failure ? `failed: ${plain(attempt.failure)}` : "answered")));
  return make("table", {}, make("tbody", {}, rows));
}
