// The nodes, and which of them is slow.

// Below this share of what the others do a node is called slow.
const SLOW = 0.6;

const TROUBLE = ["down", "auth", "wrong type", "breaker_open", "breaker_half_open", "suspect", "unknown", "cooling", "starting", "slow_start", "draining", "up"];

const HOLDING = ["draining", "cooling", "slow_start", "starting", "unknown", "breaker_half_open"];

function stateKind(state) {
  return state === "up" ? "good" : HOLDING.includes(state) ? "hold" : "bad";
}

function stateView(node) {
  const state = node.standing.state;
  const mark = { good: "✓", hold: "◐", bad: "✕" }[stateKind(state)];
  return [pill(plain(state).replace("breaker open", "left alone").replace("breaker half open", "being tried"), stateKind(state), mark)];
}

function drawNodes(told) {
  const up = told.nodes.filter((node) => node.standing.state === "up").length;
  const wanted = $("nodes-find").value.trim().toLowerCase();
  $("nodes-filter").hidden = told.nodes.length <= 10;
  const rank = (node) => TROUBLE.indexOf(node.standing.state);
  const found = told.nodes.filter((node) => !wanted || [node.name, node.engine, node.standing.state, ...node.models.map((model) => model.name)].join(" ").toLowerCase().includes(wanted));
  if (told.nodes.length > 10) found.sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name, "en", { numeric: true }));
  $("nodes-note").textContent = `${up} of ${told.nodes.length} up${wanted ? `, ${found.length} found` : ""}${told.nodes.length > 10 ? ", those in trouble first" : ""}`;
  $("nodes").querySelector(".act-col").hidden = !feed.canDrain;
  const hour = told.hour.total.nodes;
  drawMap(told);
  fill($("nodes"), found.map((node) => ({ key: node.name, cells: nodeCells(node, hour[node.label], told.at_ms) })), told.nodes.length ? "No node is called like that." : "No node is configured or found yet.");
}

function nodeCells(node, tally, now) {
  const standing = node.standing;
  const since = standing.until_ms ? `for ${span(standing.until_ms - now)} more` : standing.since_ms && standing.state !== "up" ? `since ${clock(standing.since_ms)}` : "";
  const drains = node.draining;
  return [
    { of: [node.name, node.engine, node.tier], head: true, class: "name", build: () => [make("button", { type: "button", class: "link", on: () => openNode(node.name) }, node.name), make("span", { class: "sub" }, (node.engine || "not recognised yet") + (node.tier ? `, tier ${node.tier}` : ""))] },
    { of: [standing.state, standing.reason, since, Math.round(node.availability * 20), node.warning], build: () => [...stateView(node),
      standing.reason || since ? make("span", { class: "sub" }, [standing.reason, since].filter(Boolean).join(", ")) : "",
      standing.state !== "down" && node.availability < 0.95 ? make("span", { class: "sub" }, `${Math.round(node.availability * 100)} % relied on`) : "",
      node.warning ? make("span", { class: "sub" }, node.warning) : ""] },
    { of: [node.in_flight, node.foreign, node.models.map((model) => [model.running, model.waiting, model.slots])], build: () => useView(node) },
    { of: [node.models, node.memory_bytes].map((of) => JSON.stringify(of, (name, value) => ["running", "waiting", "prefill_tokens_per_s", "decode_tokens_per_s"].includes(name) ? undefined : value)), class: "wide", build: () => memoryView(node) },
    { of: speeds(node, "prefill_tokens_per_s"), class: "n wide", build: () => speedView(node, "prefill_tokens_per_s") },
    { of: speeds(node, "decode_tokens_per_s"), class: "n wide", build: () => speedView(node, "decode_tokens_per_s") },
    { of: [tally && Math.round(tally.first_byte_mean_ms / 10), tally && tally.answered, tally && tally.failures], class: "n mid", build: () => tally ? [span(tally.first_byte_mean_ms),
      make("span", { class: "sub" }, `${many(tally.answered, "answer")}${tally.failures ? `, ${count(tally.failures)} failed` : ""}`)] : [NO_VALUE] },
    { of: [feed.canDrain, drains], hidden: !feed.canDrain, class: "n", build: () => feed.canDrain ? [make("button", { type: "button", on: () => drain(node.name, !drains),
      "aria-label": `${drains ? "Resume" : "Drain"} ${node.name}` }, drains ? "Resume" : "Drain")] : [""] },
  ];
}

function useView(node) {
  const busy = node.models.filter((model) => model.resident || model.running || model.waiting);
  const told = busy.slice(0, 3).map((model) => {
    const total = model.running + node.foreign;
    const marks = model.slots <= 16 ? make("span", { class: "slots", "aria-hidden": "true" },
      Array.from({ length: Math.max(model.slots, Math.min(total, model.slots + 4)) }, (_, n) => make("i", { class: n < total ? (n < model.slots ? "on" : "over") : "" }))) : null;
    return make("span", { class: "use", title: `${model.name}; slots: ${model.slots_source}` }, marks, `${model.running} of ${model.slots}`,
      model.waiting ? make("span", { class: "dim" }, `, ${model.waiting} wait`) : null);
  });
  if (node.foreign) told.push(make("span", { class: "sub" }, `${many(node.foreign, "request")} of others`));
  if (node.waiting_there) told.push(make("span", { class: "sub" }, `${count(node.waiting_there)} wait at the engine`));
  return told.length ? told : [node.in_flight ? count(node.in_flight) : "idle"];
}

function memoryView(node) {
  const resident = node.models.filter((model) => model.resident || model.loading);
  const told = resident.slice(0, 4).map((model) => make("span", { class: "use name" }, model.name, make("span", { class: "dim" }, model.resident ? ` ${gigabytes(model.bytes)}` : " is loaded"),
    model.state !== "up" ? [" ", pill(plain(model.state), "bad", "!")] : null));
  const more = resident.length - 4;
  if (more > 0) told.push(make("span", { class: "sub" }, `and ${more} more`));
  if (node.memory_bytes) told.push(meter(node.resident_bytes, node.memory_bytes, ""), make("span", { class: "sub" }, `${gigabytes(node.resident_bytes)} of ${gigabytes(node.memory_bytes)}`));
  return told.length ? told : [make("span", { class: "dim" }, "nothing")];
}

function speeds(node, field) {
  return node.models.filter((model) => known(model[field])).map((model) => Math.round(model[field]));
}

function speedView(node, field) {
  const all = node.models.filter((model) => known(model[field])).slice(0, 3);
  if (!all.length) return [NO_VALUE];
  return all.map((model) => make("span", { class: "use", title: model.name }, short(model[field])));
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) / 2)];
}

// Each case in which a node is much slower than the others with the same model.
function slowCases(told) {
  const cases = [];
  for (const [field, verb] of [["prefill_tokens_per_s", "reads prompts"], ["decode_tokens_per_s", "writes"]]) {
    const by = new Map();
    for (const node of told.nodes) for (const model of node.models) {
      if (known(model[field])) by.set(model.name, [...(by.get(model.name) || []), { node, speed: model[field] }]);
    }
    for (const [model, all] of by) for (const { node, speed } of all) {
      const others = all.filter((other) => other.node !== node).map((other) => other.speed);
      if (others.length && speed < SLOW * median(others)) cases.push({ node: node.name, model, verb, speed, others: median(others), times: median(others) / speed });
    }
  }
  return cases.sort((a, b) => b.times - a.times);
}

function drawSlow(told) {
  const cases = slowCases(told);
  const troubled = told.nodes.filter((node) => node.standing.state !== "up" && node.standing.state !== "draining");
  const tallies = Object.entries(told.hour.total.nodes).filter(([, tally]) => known(tally.first_byte_mean_ms)).sort((a, b) => b[1].first_byte_mean_ms - a[1].first_byte_mean_ms);
  const all = tallies.reduce((sum, [, tally]) => [sum[0] + tally.answered * tally.first_byte_mean_ms, sum[1] + tally.answered], [0, 0]);
  const mean = all[1] ? all[0] / all[1] : null;
  const late = tallies.filter(([, tally]) => tally.answered >= 5 && tallies.length > 1 && tally.first_byte_mean_ms * SLOW > mean);
  const slow = [...new Set([...cases.map((found) => found.node), ...late.map(([name]) => name)])];
  const lead = slow.length ? `${slow.slice(0, 3).join(", ")}${slow.length > 3 ? ` and ${slow.length - 3} more` : ""}` : "";
  show($("slow-lead"), [lead, tallies.length > 0], () => lead ? [make("b", {}, lead), slow.length === 1 ? " is slower than the others." : " are slower than the others."]
    : [tallies.length ? "No node stands out." : "Nothing is known of any node's speed yet."]);
  const why = [
    ...troubled.slice(0, 3).map((node) => `${node.name} is ${plain(node.standing.state)}${node.standing.reason ? `: ${node.standing.reason}` : ""}`),
    ...cases.slice(0, 5).map((found) => `${found.node} ${found.verb} at ${short(found.speed)} tokens a second with ${found.model}, others at ${short(found.others)}: ${found.times.toFixed(1)} times slower`),
    ...late.slice(0, 5).map(([name, tally]) => `${name}: first tokens after ${span(tally.first_byte_mean_ms)} on average, the fleet's after ${span(mean)}`),
  ].slice(0, 7);
  show($("slow-why"), why, () => why.map((text) => make("li", {}, text)));
  const most = tallies.length ? tallies[0][1].first_byte_mean_ms : 0;
  fill($("slow"), tallies.slice(0, 8).map(([name, tally]) => ({
    key: name,
    cells: [{ of: name, head: true, class: "name" },
      { of: [Math.round(tally.first_byte_mean_ms), Math.round(most), slow.includes(name)], build: () => [meter(tally.first_byte_mean_ms, most, slow.includes(name) ? "slow" : "")] },
      { of: `${span(tally.first_byte_mean_ms)}${slow.includes(name) ? ", slow" : ""}`, class: "n" }],
  })), "No first token in the last hour.");
}
