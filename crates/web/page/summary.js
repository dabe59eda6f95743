// The header, the tiles with their recent course, and the problems.

import { Keyed, el, set, svg, text } from "./dom.js";
import { bitRate, count, duration, many, rate } from "./format.js";
import { isUrgent } from "./layout.js";

const COURSE = 60;

// Tiles of totals.
export class Tiles {
  constructor(parent) {
    this.rows = new Keyed(parent);
    this.course = new Map();
  }

  // Shows a state; `isNew` if it was not shown before.
  show(daemon, isNew) {
    const all = [...daemon.ports];
    const sum = (value) => daemon.seconds === undefined ? null : all.reduce((total, one) => total + value(one.rates), 0);
    const running = daemon.ports.filter((port) => port.state === "running").length;
    const down = daemon.links.filter((link) => link.state === "down").length;
    const bytes = sum((rates) => rates.received_bytes);
    const packets = sum((rates) => rates.received_packets);
    const drops = sum((rates) => rates.drops);
    const tiles = [
      { key: "Delivered to guests", value: bitRate(bytes), course: bytes },
      { key: "Frames and messages", value: packets === null ? "–" : `${rate(packets)}/s`, course: packets },
      { key: "Dropped or rejected", value: drops === null ? "–" : `${rate(drops)}/s`, course: drops, isWarning: drops > 0 },
      { key: "Ports running", value: `${count(running)} of ${count(daemon.ports.length)}`, note: many(daemon.groups.length, "group"), isWarning: daemon.ports.some(isUrgent) },
      { key: "Links up", value: `${count(daemon.links.length - down)} of ${count(daemon.links.length)}`, note: many(new Set(daemon.ways.map((way) => way.peer)).size, "host"), isWarning: down > 0 },
      { key: "AF_VSOCK connections", value: `${count(daemon.connections)}${daemon.has_more_connections ? "+" : ""}`, course: daemon.connections },
    ];
    for (const tile of tiles) if (isNew && typeof tile.course === "number") this.remember(tile);
    this.rows.show(tiles, (tile) => tile.key, makeTile, (node, tile) => this.update(node, tile));
  }

  remember({ key, course }) {
    this.course.set(key, [...(this.course.get(key) ?? []), course].slice(-COURSE));
  }

  update(node, tile) {
    text(node.value, tile.value);
    set(node, "class", `tile${tile.isWarning ? " warning" : ""}`);
    text(node.note, tile.note ?? "");
    const values = this.course.get(tile.key) ?? [];
    const most = Math.max(...values, 1e-9);
    const point = (value, at) => `${(COURSE - values.length + at) * 100 / (COURSE - 1)},${(22 - 20 * value / most).toFixed(1)}`;
    const line = values.length > 1 ? `M${values.map(point).join("L")}` : "";
    set(node.line, "d", line);
    set(node.area, "d", line && `${line}L100,24L${(COURSE - values.length) * 100 / (COURSE - 1)},24Z`);
  }
}

function makeTile({ key }) {
  const node = el("div", { class: "tile" });
  node.value = el("strong");
  node.note = el("span", { class: "tile-note" });
  node.area = svg("path", { class: "area" });
  node.line = svg("path", { class: "line" });
  node.append(el("span", { class: "tile-name" }, key), node.value, node.note,
    svg("svg", { viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" }, node.area, node.line));
  return node;
}

// Shows the header: the host, whether the data is current, version and uptime.
export function showHeader({ host, live, about }, state, age) {
  text(host, state.host);
  document.title = `${state.host} · Causeway`;
  const isStale = age > 3 * state.interval_ms + 2000;
  const word = state.error ? "no answer" : isStale ? `no news for ${duration(age / 1000)}` : "live";
  text(live, word);
  set(live, "class", `live ${state.error ? "bad" : isStale ? "stale" : "good"}`);
  const { daemon } = state;
  text(about, daemon && !state.error ? `causewayd ${daemon.version} · up ${duration(daemon.uptime_seconds)}` : "");
}

// Shows the problems, or that there are none. Without an answer of the daemon they are unknown.
export function showHealth(parent, { daemon, error }, onSelect) {
  const { findings } = daemon;
  const word = error ? "unknown: no answer" : findings.length ? many(findings.length, "problem") : "No problems found";
  const shown = JSON.stringify([findings, Boolean(error)]);
  if (parent.shown === shown) return;
  parent.shown = shown;
  const subject = ({ text: words, object }) => object ? el("button", { type: "button", click: () => onSelect(object) }, words) : el("p", {}, words);
  const item = (finding) => el("li", { class: finding.weight }, subject(finding), finding.remedy ? el("p", { class: "remedy" }, finding.remedy) : "");
  parent.replaceChildren(
    el("div", { class: "panel-head" }, el("h2", { id: "health-title" }, "Health"), el("span", { class: `chip ${error ? "down" : findings.length ? "cut-off" : "running"}` }, word)),
    findings.length ? el("ul", { tabindex: 0, "aria-label": "Problems" }, findings.map(item)) : "",
  );
}
