// The latest reloads of the configuration, and what each changed, key by key.

const VALUE_CHARS_MAX = 120;

function drawReloads(list, now) {
  $("reloads-box").hidden = $("reloads-link").hidden = list.length === 0;
  $("bad-file").hidden = list.length === 0 || list[0].outcome !== "refused";
  $("reloads-note").textContent = list.length ? `the latest ${list.length}` : "";
  fill($("reloads"), list.map((reload) => ({
    key: reload.at_ms,
    cells: [
      { of: [ago(reload.at_ms, now), reload.cause], class: "nowrap", build: () => [ago(reload.at_ms, now), make("span", { class: "sub" }, `by ${plain(reload.cause)}, ${span(reload.took_ms)}`)] },
      { of: reload.outcome, build: () => [outcomePill(reload.outcome)] },
      { of: [reload.changes, reload.needs_new_process, reload.lines], class: "lines", build: () => diff(reload) },
    ],
  })), "None yet.");
}

function outcomePill(outcome) {
  const [kind, mark] = { applied: ["good", "✓"], unchanged: ["", ""], refused: ["bad", "✕"] }[outcome] || ["hold", "!"];
  return pill(plain(outcome), kind, mark);
}

function diff(reload) {
  const held = (reload.needs_new_process || []).map((change) => changeView(change, true));
  const changes = (reload.changes || []).map((change) => changeView(change, false));
  if (changes.length + held.length === 0) return (reload.lines || []).map((line) => make("div", {}, line));
  return [...changes, ...held, reload.more ? make("div", { class: "dim" }, `and ${count(reload.more)} more`) : ""];
}

function changeView(change, held) {
  const key = make("span", { class: "mono" }, change.key || "what is not shown");
  const values = [];
  if (change.from !== undefined) values.push(make("del", {}, brief(change.from)));
  if (change.to !== undefined) values.push(make("ins", {}, brief(change.to)));
  const word = change.what === "changed" && values.length ? "" : ` ${change.what}`;
  return make("div", { class: "change" }, key, word, ...values.flatMap((value) => [" ", value]), held ? [" ", pill("needs a new process", "hold", "!")] : null);
}

// A value as people write it: an entry of a list by what sets it apart.
function brief(value) {
  if (value === null) return "none";
  const text = typeof value === "string" ? value : JSON.stringify(value, (name, inner) => inner === null ? undefined : inner);
  return text.length > VALUE_CHARS_MAX ? `${text.slice(0, VALUE_CHARS_MAX)}…` : text;
}
