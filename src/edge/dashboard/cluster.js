// Replicas: whether this one agrees with others over Redis, and which of them it hears.

// From so long ago a last word is told as silence; whoever lives says something several times a second.
const SILENT = 2000;

function drawCluster(told) {
  const cluster = told.cluster;
  $("cluster-box").hidden = $("cluster-link").hidden = !cluster;
  if (!cluster) return;
  const [word, kind, mark, text] = clusterState(cluster, told.at_ms);
  show($("cluster-lead"), [word, text], () => [pill(word, kind, mark), " ", text]);
  const notes = clusterNotes(cluster);
  show($("cluster-notes"), notes, () => notes.map((note) => make("li", {}, note)));
  $("cluster-notes").hidden = notes.length === 0;
  $("cluster-note").textContent = `${cluster.redis}, prefix ${cluster.prefix}`;
  const self = { replica: cluster.replica, name: cluster.name, in_flight: told.in_flight };
  fill($("cluster"), [self, ...cluster.heard].map((replica) => ({
    key: replica.replica,
    cells: [
      { of: [replica.name, replica.replica], head: true, class: "name", build: () => [replica.name || "no name", make("span", { class: "sub mono" }, replica.replica.slice(0, 8))] },
      lastWord(replica.heard_ms_ago),
      { of: count(replica.in_flight), class: "n" },
    ],
  })), "");
}

// A word, its colour and mark, and what it means.
function clusterState(cluster, now) {
  const since = known(cluster.since_ms) ? ago(cluster.since_ms, now) : "its start";
  const others = many(cluster.other_replicas, "other replica");
  if (!cluster.up) return ["on its own", "bad", "!", `Since ${since} this replica goes by what it knows: ${cluster.problem || "it has not reached Redis yet"}.`];
  const answer = known(cluster.answer_ms) ? `Redis' last answer took ${latency(cluster.answer_ms)}` : "Redis has not answered yet";
  if (!cluster.quick) return ["slow", "hold", "◐", `${answer}: nobody waits for it, and limits go by shares. Connected since ${since}, with ${others}.`];
  return ["shared", "good", "✓", `With ${others}, since ${since}. ${answer}.`];
}

function clusterNotes(cluster) {
  const { up, problem, heard, other_fleets, other_versions, turns_not_told, charges_not_told } = cluster;
  const late = heard.filter((replica) => replica.late);
  return [
    up && problem ? `Redis refuses what it is given: ${problem}.` : "",
    !up && turns_not_told + charges_not_told > 0 ? `Kept until Redis is back: ${many(turns_not_told, "turn")} and ${many(charges_not_told, "charge")}.` : "",
    other_fleets > 0 ? `${many(other_fleets, "other set")} of upstreams on the same prefix: another configuration, or another fleet that needs a prefix of its own.` : "",
    ...late.map((replica) => `What ${replica.name} says is ${span(replica.under_way_ms)} old when it comes, by the clocks of both: its requests count in no depth here. Set both clocks by NTP; if they are right, Redis or the network holds messages up.`),
    other_versions.length > 0 ? "Replicas of another version are there, and are not understood: upgrade all of them." : "",
  ].filter((note) => note);
}

function lastWord(ms) {
  if (!known(ms)) return { of: "this one", class: "dim" };
  const silent = ms >= SILENT;
  return { of: silent ? [Math.round(ms / 1000)] : "now", build: () => silent ? [pill("silent", "hold", "!"), ` for ${span(Math.round(ms / 1000) * 1000)}`] : ["just now"] };
}

function latency(ms) {
  return ms < 10 ? `${ms.toFixed(1)} ms` : span(ms);
}
