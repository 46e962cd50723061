// Many nodes in one look: a square for each, filled by how much of it is in use. The table below has the same in words.

const MAPPED_FROM = 13;

function useOf(node) {
  const most = node.models.filter((model) => model.resident || model.running).map((model) => (model.running + model.waiting + node.foreign) / Math.max(1, model.slots));
  return Math.max(0, ...most);
}

function drawMap(told) {
  const box = $("map");
  box.hidden = told.nodes.length < MAPPED_FROM;
  if (box.hidden) return;
  const states = new Map();
  for (const node of told.nodes) states.set(node.standing.state, (states.get(node.standing.state) || 0) + 1);
  box.setAttribute("aria-label", `${many(told.nodes.length, "node")}: ${[...states].map(([state, number]) => `${number} ${plain(state)}`).join(", ")}`);
  const cells = told.nodes.map((node) => [node.name, stateKind(node.standing.state), Math.min(4, Math.ceil(4 * useOf(node))), plain(node.standing.state), node.in_flight]);
  show(box, cells, () => cells.map(([name, kind, use, state, running]) => {
    const cell = make("i", { class: `cell ${kind} use-${use}`, title: `${name}: ${state}, ${many(running, "request")}` });
    cell.addEventListener("click", () => openNode(name));
    return cell;
  }));
}
