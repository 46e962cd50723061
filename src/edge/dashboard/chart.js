// Small charts, drawn from numbers: bars for minutes, and bars for points.

const MINUTE = 60e3;
const HEIGHT = 132;
const FOOT = 18;
const LEFT = 44;

// The minutes of the hour in their places; a minute in which nothing happened is missing.
function places(hour, now) {
  const last = Math.floor(now / MINUTE);
  return hour.minutes.map((minute) => ({ ...minute, place: hour.minutes_kept - 1 - (last - Math.floor(minute.at_ms / MINUTE)) }))
    .filter((minute) => minute.place >= 0);
}

function frame(box, label, top, unit) {
  const width = Math.max(240, box.clientWidth);
  const chart = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  const right = width - 4;
  const y = (value) => 8 + (HEIGHT - FOOT - 8) * (1 - value / top);
  for (const share of [0, 0.5, 1]) {
    const at = y(top * share);
    chart.append(svg("line", { class: "grid", x1: LEFT, x2: right, y1: at, y2: at }));
    const text = svg("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" });
    text.textContent = unit(top * share);
    chart.append(text);
  }
  for (const [minutes, anchor] of [[60, "start"], [30, "middle"], [0, "end"]]) {
    const text = svg("text", { x: right - ((right - LEFT) * minutes) / 60, y: HEIGHT - 3, "text-anchor": anchor });
    text.textContent = minutes ? `${minutes} min ago` : "now";
    chart.append(text);
  }
  const step = (right - LEFT) / 60;
  return { chart, y, step, x: (place) => LEFT + place * step };
}

// The next round number above.
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].map((times) => times * power).find((round) => round >= value);
}

// Parts of each minute on top of one another.
function stacked(box, minutes, parts, label, unit) {
  const most = ceiling(Math.max(1, ...minutes.map((minute) => parts.reduce((sum, part) => sum + part.of(minute), 0))));
  const { chart, x, y, step } = frame(box, label, most, unit);
  for (const minute of minutes) {
    let below = 0;
    for (const part of parts) {
      const value = part.of(minute);
      if (value <= 0) continue;
      const [from, to] = [y(below + value), y(below)];
      chart.append(svg("rect", { class: part.class, x: x(minute.place) + 0.5, y: from, width: Math.max(1, step - 1), height: Math.max(0.5, to - from), rx: 1 }));
      below += value;
    }
  }
  box.replaceChildren(chart);
}

function lines(box, minutes, parts, label, unit) {
  const values = minutes.flatMap((minute) => parts.map((part) => part.of(minute) || 0));
  const { chart, x, y, step } = frame(box, label, ceiling(Math.max(1, ...values)), unit);
  for (const part of parts) {
    const seen = minutes.filter((minute) => known(part.of(minute)));
    const at = (minute) => [x(minute.place) + step / 2, y(part.of(minute))];
    let path = "";
    seen.forEach((minute, n) => {
      const joined = n > 0 && seen[n - 1].place === minute.place - 1;
      path += `${joined ? "L" : "M"}${at(minute).map((value) => value.toFixed(1)).join(" ")}`;
      chart.append(svg("circle", { class: `dot ${part.class}`, cx: at(minute)[0], cy: at(minute)[1], r: 1.8 }));
    });
    chart.append(svg("path", { class: `line ${part.class}`, d: path || "M0 0" }));
  }
  box.replaceChildren(chart);
}

// Eight points side by side around one axis; the whole receipt has them in words.
function strip(names, signals) {
  const [width, height, zero] = [13, 34, 22];
  const words = names.map((name) => `${plain(name)} ${points(signals[name])}`).join(", ");
  const chart = svg("svg", { class: "sig", width: names.length * width, height, role: "img", "aria-label": words });
  chart.append(svg("line", { class: "axis", x1: 0, x2: names.length * width, y1: zero, y2: zero }));
  names.forEach((name, n) => {
    const value = signals[name] || 0;
    // The roots, so that a point still shows beside fifty.
    const size = Math.sqrt(Math.min(50, Math.abs(value)) / 50) * (value < 0 ? height - zero : zero);
    const side = value < 0 ? "down" : "up";
    const bar = Math.abs(value) < 0.05
      ? svg("rect", { class: "none", x: n * width + 2, y: zero - 1, width: width - 4, height: 2 })
      : svg("rect", { class: side, x: n * width + 2, y: value < 0 ? zero : zero - size, width: width - 4, height: Math.max(2, size), rx: 1.5 });
    const title = svg("title");
    title.textContent = `${plain(name)} ${points(value, true)}`;
    bar.append(title);
    chart.append(bar);
  });
  return chart;
}

// One part of a score, to the left of the axis where it is negative.
function part(value, least, most) {
  const chart = svg("svg", { class: "sig", viewBox: "0 0 100 14", preserveAspectRatio: "none", "aria-hidden": "true" });
  const place = (of) => ((of - least) / (most - least || 1)) * 100;
  const [from, to] = [Math.min(value, 0), Math.max(value, 0)].map(place);
  chart.append(svg("rect", { class: value < 0 ? "down" : "up", x: from, y: 2, width: Math.max(0.4, to - from), height: 10 }));
  chart.append(svg("line", { class: "axis", x1: place(0), x2: place(0), y1: 0, y2: 14 }));
  return chart;
}

// The hour in small, without a scale: its shape only.
function spark(minutes, of, kind) {
  const most = Math.max(0, ...minutes.map((minute) => of(minute) || 0));
  const chart = svg("svg", { class: `spark ${kind}`, viewBox: "0 0 60 20", preserveAspectRatio: "none" });
  chart.append(svg("line", { x1: 0, x2: 60, y1: 19.5, y2: 19.5 }));
  for (const minute of minutes) {
    const value = of(minute) || 0;
    if (value > 0) chart.append(svg("rect", { x: minute.place + 0.1, y: 19 - (18 * value) / most, width: 0.8, height: 1 + (18 * value) / most }));
  }
  return chart;
}
