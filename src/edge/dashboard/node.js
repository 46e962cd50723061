// All of one node: its state, its models, and the latest requests that went there.

async function openNode(name) {
  const node = feed.told.nodes.find((one) => one.name === name);
  if (!node) return;
  const answer = await ask(`/fleet/receipts?limit=20&node=${encodeURIComponent(name)}`);
  const latest = answer && answer.ok ? await answer.json() : [];
  $("receipt-h").textContent = name;
  $("receipt-body").replaceChildren(...nodeView(node, latest));
  if (!$("receipt").open) $("receipt").showModal();
}

function nodeView(node, latest) {
  const standing = node.standing;
  const words = [standing.reason, node.drained_by.includes("file") ? "the configuration drains it" : "", node.drained_by.includes("discovery") ? "its server is on its way out" : "", node.drained_by.includes("admin") ? "an operator drains it" : "", node.warning].filter(Boolean);
  const facts = [["Engine", node.engine || "not recognised yet"], ["Relied on", `${Math.round(node.availability * 100)} %`],
    ["Running", count(node.in_flight)], ["Of others", count(node.foreign)], ["Tier", count(node.tier)],
    ["Memory", node.memory_bytes ? `${gigabytes(node.resident_bytes) || "0 GB"} of ${gigabytes(node.memory_bytes)}` : "not configured"]];
  return [
    make("p", { class: "why" }, ...stateView(node), " ", words.join("; ")),
    make("dl", { class: "facts" }, facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)))),
    make("h3", {}, `Models in memory or in use, ${count(node.models.length)} of ${count(node.models_in_all)}`),
    table("Models", ["Model", "State", "In use", "Reads", "Writes", "Window"], node.models.map((model) => [model.name, modelState(model),
      `${count(model.running)} of ${count(model.slots)}${model.waiting ? `, ${count(model.waiting)} wait` : ""} (${plain(model.slots_source)})`,
      known(model.prefill_tokens_per_s) ? `${short(model.prefill_tokens_per_s)}/s` : NO_VALUE,
      known(model.decode_tokens_per_s) ? `${short(model.decode_tokens_per_s)}/s` : NO_VALUE, short(model.context_tokens)]), "None is in memory."),
    make("h3", {}, "The latest requests that went there"),
    table("Requests", ["When", "Because", "Model", "Queued", "First token"], latest.map((turn) => [
      make("button", { type: "button", class: "link", on: () => openReceipt(turn.request_id) }, new Date(turn.wall_ms).toLocaleTimeString("en-GB")),
      because(turn), turn.model, span(turn.times_ms.queue), span(turn.times_ms.first_byte)]), "None yet."),
  ];
}

function modelState(model) {
  if (model.state !== "up") return [pill(plain(model.state), "bad", "!"), model.reason ? make("span", { class: "sub" }, model.reason) : ""];
  return model.loading ? "is loaded now" : model.resident ? `in memory${model.bytes ? `, ${gigabytes(model.bytes)}` : ""}` : "on disk";
}

// Columns for which a phone has no room.
const NARROW_LACKS = ["Writes", "Window", "Queued"];

// A small table for a dialog; the first cell of a row names it.
function table(label, columns, rows, none) {
  if (rows.length === 0) return make("p", { class: "aside" }, none);
  const kind = (at) => at === 0 ? "name" : NARROW_LACKS.includes(columns[at]) ? "wide" : "";
  const head = make("tr", {}, columns.map((name, at) => make("th", { scope: "col", class: kind(at) }, name)));
  const lines = rows.map((cells) => make("tr", {}, cells.map((cell, at) => make(at ? "td" : "th", { scope: at ? null : "row", class: kind(at) }, cell))));
  return make("div", { class: "scroll short", tabindex: "0", role: "region", "aria-label": label }, make("table", {}, make("thead", {}, head), make("tbody", {}, lines)));
}
