// The hour, lost warmth, what is under way, conversations and models.

function drawTiles(told) {
  const total = told.hour.total;
  const minutes = places(told.hour, told.at_ms);
  const prompt = total.cached_tokens + total.uncached_tokens;
  const warmOf = (minute) => minute.cached_tokens + minute.believed_cached_tokens;
  const share = prompt ? `${Math.round((100 * warmOf(total)) / prompt)} %` : NO_VALUE;
  const estimated = total.believed_cached_tokens > 0 ? "≈ " : "";
  const tiles = [
    ["First token, last hour", span(total.first_byte_p50_ms), known(total.first_byte_p95_ms) ? `median; p95 ${span(total.first_byte_p95_ms)}` : "none yet", "warm", (m) => m.first_byte_p50_ms],
    ["Prompt kept warm", prompt ? estimated + share : NO_VALUE, total.saved_s_estimated > 0 ? `≈ ${span(total.saved_s_estimated * 1000)} not read` : `of ${short(prompt)} tokens`, "warm", (m) => warmOf(m) / Math.max(1, m.cached_tokens + m.uncached_tokens)],
    ["Lost warmth", total.moved ? `≈ ${span(total.lost_s_estimated * 1000)}` : "none", total.moved ? `${many(total.moved, "turn")} moved` : "every turn stayed home", "cool", (m) => m.moved],
    ["Requests", count(total.requests), total.failures ? `${count(total.failures)} failed` : "none failed", total.failures ? "bad" : "dim", (m) => total.failures ? m.failures : m.requests],
    ["Now", count(told.in_flight), told.waiting ? `under way, ${count(told.waiting)} wait here` : "under way, none wait", "", null],
  ];
  const slots = told.nodes.flatMap((node) => node.models.filter((model) => model.resident)).reduce((sum, model) => sum + model.slots, 0);
  show($("tiles"), [tiles, minutes.map((minute) => [minute.place, minute.requests]), slots], () => tiles.map(([name, big, more, kind, of]) => make("div", {},
    make("dt", {}, name), make("dd", { class: "big" }, big), make("dd", { class: "more" }, more),
    of ? make("dd", { class: "mini", "aria-hidden": "true" }, spark(minutes, of, kind)) : make("dd", { class: "mini", "aria-hidden": "true" }, meter(told.in_flight, slots, "warm")))));
}

function drawLost(told) {
  const total = told.hour.total;
  const cost = `about ${span(total.lost_s_estimated * 1000)}`;
  show($("lost-lead"), [total.moved, total.lost_s_estimated, total.lost_tokens_estimated], () => total.moved
    ? [make("b", {}, many(total.moved, "turn")), ` left the node that knew ${total.moved === 1 ? "its" : "their"} conversation in the last hour. Reading `,
      make("b", {}, `${short(total.lost_tokens_estimated)} tokens`), " again cost ", make("b", {}, cost), "."]
    : ["No conversation lost its warmth in the last hour."]);
  show($("lost-by"), told.hour.lost_by, () => Object.entries(told.hour.lost_by).map(([why, number]) => pill(`${count(number)}: ${WHY[why] || why}`)));
  $("lost-box").hidden = told.hour.losses.length === 0;
  fill($("lost"), told.hour.losses.map((loss) => ({
    key: loss.request_id + loss.at_ms,
    cells: [
      { of: ago(loss.at_ms, told.at_ms), class: "nowrap dim mid" },
      { of: loss.request_id, build: () => [make("button", { type: "button", class: "link mono", on: () => openReceipt(loss.request_id), "aria-label": `conversation ${loss.session}: open the receipt` }, (loss.session || "").slice(0, 8))] },
      { of: `${loss.from || "a node that is gone"} → ${loss.to || "none"}`, class: "name" },
      plain(loss.why),
      { of: `≈ ${short(loss.tokens_estimated)}`, class: "n wide" },
      { of: known(loss.seconds_estimated) ? `≈ ${span(loss.seconds_estimated * 1000)}` : NO_VALUE, class: "n" },
    ],
  })), "");
}

function key(text, kind) {
  return make("span", { class: `key ${kind}` }, text);
}

function drawHour(told) {
  const minutes = places(told.hour, told.at_ms);
  const total = told.hour.total;
  const warm = (minute) => minute.cached_tokens + minute.believed_cached_tokens;
  const cold = (minute) => Math.max(0, minute.uncached_tokens - minute.believed_cached_tokens);
  const width = document.body.clientWidth;
  if (drawHour.sign === JSON.stringify([minutes, width])) return;
  drawHour.sign = JSON.stringify([minutes, width]);
  $("c1").replaceChildren(make("b", {}, "Requests"), key("answered", "dim"), key("failed", "bad"));
  stacked($("chart-requests"), minutes, [{ of: (m) => m.requests - m.failures, class: "dim" }, { of: (m) => m.failures, class: "bad" }],
    `Requests a minute: ${count(total.requests)} in the last hour, ${count(total.failures)} failed`, short);
  $("c2").replaceChildren(make("b", {}, "First token"), key("half are sooner", "warm line"), key("95 % are sooner", "dim line"));
  lines($("chart-first"), minutes, [{ of: (m) => m.first_byte_p95_ms, class: "soft" }, { of: (m) => m.first_byte_p50_ms, class: "" }],
    `Time to the first token: half within ${span(total.first_byte_p50_ms)}, 95 percent within ${span(total.first_byte_p95_ms)}`, span);
  $("c3").replaceChildren(make("b", {}, "Prompt tokens"), key("kept warm", "warm"), key("read", "cool"));
  stacked($("chart-tokens"), minutes, [{ of: warm, class: "warm" }, { of: cold, class: "cool" }],
    `Prompt tokens: ${count(warm(total))} kept warm, ${count(cold(total))} read`, short);
  fill($("hour"), [...minutes].reverse().map((minute) => ({
    key: minute.at_ms,
    cells: [{ of: clock(minute.at_ms), head: true }, ...[count(minute.requests), count(minute.failures), span(minute.first_byte_p50_ms), span(minute.first_byte_p95_ms),
      short(warm(minute)), short(cold(minute)), count(minute.moved), minute.moved ? `≈ ${span(minute.lost_s_estimated * 1000)}` : NO_VALUE].map((of) => ({ of, class: "n" }))],
  })), "Nothing yet.");
}

function drawLive(told) {
  const more = told.in_flight + told.waiting - told.live.length;
  $("live-note").textContent = more > 0 ? `the ${told.live.length} that run longest` : "";
  const words = { queued: ["waits here for a node", "hold"], answering: ["answers", "warm"] };
  fill($("live"), told.live.map((request) => {
    const [text, kind] = words[request.phase] || ["waits for the first token", "cool"];
    return {
      key: request.request_id + request.path,
      cells: [
        { of: request.node || NO_VALUE, head: true, class: "name" },
        { of: [text, request.attempts], build: () => [pill(text, kind), request.attempts > 1 ? make("span", { class: "sub" }, `attempt ${request.attempts}`) : ""] },
        { of: span(Math.round(request.running_ms / 100) * 100), class: "n" },
        { of: request.model, class: "name wide" },
        request.affinity ? warmth(request.affinity)[0] : NO_VALUE,
        { of: `≈ ${short(request.prompt_tokens_estimated)}`, class: "n wide" },
        { of: request.request_id.slice(0, 12), class: "mono wide" },
      ],
    };
  }), "Nothing is under way.");
}

function drawSessions(told) {
  $("sessions-note").textContent = told.hour.sessions_in_all > told.hour.sessions.length ? `the latest ${told.hour.sessions.length} of ${count(told.hour.sessions_in_all)}` : "";
  fill($("sessions"), told.hour.sessions.map((session) => ({
    key: session.session,
    cells: [
      { of: [session.session, session.model], head: true, build: () => [make("button", { type: "button", class: "link mono", on: () => openSession(session), "aria-label": `conversation ${session.session}: its turns` }, session.session.slice(0, 8)), make("span", { class: "sub name" }, session.model)] },
      { of: session.node, class: "name" },
      { of: count(session.turns), class: "n" },
      { of: [session.saved_tokens, session.prompt_tokens], build: () => [meter(session.saved_tokens, session.prompt_tokens, "warm"), make("span", { class: "sub" }, tokens(session.saved_tokens, session.saved_is_estimate, session.prompt_tokens))] },
      { of: [session.moved, session.lost_s_estimated], class: "n", build: () => [count(session.moved), session.lost_s_estimated > 0 ? make("span", { class: "sub" }, `≈ ${span(session.lost_s_estimated * 1000)}`) : ""] },
      { of: ago(session.last_ms, told.at_ms), class: "n dim wide" },
    ],
  })), "No conversation yet.");
}

async function openSession(session) {
  const answer = await ask(`/fleet/receipts?limit=50&session=${encodeURIComponent(session.session)}`);
  if (!answer || !answer.ok) return;
  const turns = await answer.json();
  const rows = turns.map((turn) => make("tr", {}, make("td", { class: "nowrap dim" }, new Date(turn.wall_ms).toLocaleTimeString("en-GB")),
    make("td", {}, make("button", { type: "button", class: "link", on: () => openReceipt(turn.request_id) }, turn.node || "no node")),
    make("td", {}, ...because(turn)), make("td", { class: "n" }, span(turn.times_ms.first_byte))));
  $("receipt-h").textContent = "Conversation";
  $("receipt-body").replaceChildren(make("p", { class: "why" }, `Conversation ${session.session} with ${session.model}, at home at ${session.node}. Its latest turns:`),
    make("table", {}, make("thead", {}, make("tr", {}, ["When", "Node", "Because", "First token"].map((name) => make("th", { scope: "col" }, name)))), make("tbody", {}, rows)));
  if (!$("receipt").open) $("receipt").showModal();
}

function meter(value, most, kind) {
  const bar = make("i");
  bar.style.width = `${Math.min(100, most > 0 ? (100 * value) / most : 0)}%`;
  return make("span", { class: `meter ${kind}`, "aria-hidden": "true" }, bar);
}

function placesOf(names, all) {
  if (names.length === 0) return [NO_VALUE];
  if (names.length === all && all > 3) return [`all ${all} nodes`];
  if (names.length > 6) return [make("span", { title: names.join(", ") }, `${names.length} of ${all} nodes`)];
  return names.flatMap((name, n) => [n ? ", " : "", make("span", { class: "nowrap" }, name)]);
}

function drawModels(told) {
  const differing = new Set(told.drift.map((drift) => drift.model)).size;
  $("models-note").textContent = [told.models_in_all > told.models.length ? `${told.models.length} of ${count(told.models_in_all)}` : "", differing ? `${many(differing, "model")} differ between nodes` : ""].filter(Boolean).join("; ");
  const warmFirst = [...told.models].sort((a, b) => b.resident.length - a.resident.length || a.name.localeCompare(b.name));
  fill($("models"), warmFirst.map((model) => {
    const drifts = told.drift.filter((drift) => drift.model === model.name);
    return {
      key: model.name,
      cells: [
        { of: model.name, head: true, class: "name" },
        { of: model.resident, class: "name", build: () => placesOf(model.resident, told.nodes.length) },
        { of: model.on_disk, class: "name dim wide", build: () => placesOf(model.on_disk, told.nodes.length) },
        { of: drifts, build: () => drifts.length ? drifts.map((drift) => [pill(plain(drift.kind), "hold", "≠"), make("span", { class: "sub name" },
          Object.entries(drift.values).map(([value, nodes]) => `${value.slice(0, 16)}: ${nodes.join(", ")}`).join("; "))]).flat() : [NO_VALUE] },
      ],
    };
  }), "No node has told its models yet.");
}
