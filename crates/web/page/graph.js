// Draws the layout as SVG, and keeps the elements from one state to the next.

import { Keyed, el, fit, measure, set, svg, text } from "./dom.js";
import { bitRate, many, shortRate } from "./format.js";
import { layout } from "./layout.js";

// The picture of the daemon, in an element. `onSelect` gets the key of a chosen object.
export class Graph {
  constructor(parent, onSelect) {
    this.onSelect = onSelect;
    this.open = new Set();
    this.parent = parent;
    this.frame = svg("rect", { class: "frame", x: 0.5, y: 0.5, rx: 12 });
    this.frameName = svg("text", { class: "frame-name", x: 14, y: 19 });
    this.hostsName = svg("text", { class: "frame-name" });
    const layers = ["cards", "wires", "hosts"].map((name) => svg("g", { class: name }));
    [this.cards, this.wires, this.hosts] = layers.map((layer) => new Keyed(layer));
    this.svg = svg("svg", { role: "group", "aria-label": "Groups with their ports and links, and the hosts at the far ends of links" },
      this.frame, this.frameName, this.hostsName, ...layers);
    this.empty = el("p", { class: "empty", hidden: true });
    this.note = el("p", { class: "note", hidden: true });
    parent.append(this.svg, this.empty, this.note);
    new ResizeObserver(() => this.draw()).observe(parent);
  }

  // Shows a state; `selected` is the key of the chosen object.
  show(daemon, host, selected) {
    Object.assign(this, { daemon, host, selected });
    this.draw();
  }

  draw() {
    const width = Math.floor(this.parent.clientWidth);
    if (!this.daemon || width < 40) return;
    const isEmpty = this.daemon.groups.length === 0;
    set(this.empty, "hidden", !isEmpty);
    this.svg.style.display = isEmpty ? "none" : "";
    text(this.empty, "No groups yet. Add one: causeway group add blue, then causeway port add vm1-net --kind net --group blue");
    if (isEmpty) return;
    const picture = layout(this.daemon, width, this.open);
    set(this.svg, "viewBox", `0 0 ${picture.width} ${picture.height}`);
    set(this.svg, "width", picture.width);
    set(this.svg, "height", picture.height);
    set(this.frame, "width", picture.frame - 1);
    set(this.frame, "height", picture.frameHeight - 1);
    text(this.frameName, `${this.host} · this host`);
    const [first] = picture.hosts;
    text(this.hostsName, first ? "other hosts" : "");
    set(this.hostsName, "x", first ? first.x + 2 : 0);
    set(this.hostsName, "y", first ? first.y - 9 : 0);
    this.wires.show(picture.wires, (wire) => wire.key, makeWire, updateWire);
    this.cards.show(picture.cards, (card) => card.key, () => this.makeCard(), (node, card) => this.updateCard(node, card));
    this.hosts.show(picture.hosts, (one) => one.key, (one) => this.makeHost(one), (node, one) => this.updateHost(node, one));
    set(this.note, "hidden", picture.omitted === 0);
    text(this.note, `${many(picture.omitted, "further group")} without problems: see the tables.`);
  }

  makeCard() {
    const node = svg("g", { class: "card" });
    node.back = svg("rect", { class: "card-back", rx: 10 });
    node.title = svg("text", { class: "card-title", x: 14, y: 24 });
    node.summary = svg("text", { class: "card-summary", y: 24 });
    const layers = ["edges", "boxes"].map((name) => svg("g", { class: name }));
    [node.edges, node.boxes] = layers.map((layer) => new Keyed(layer));
    node.append(node.back, node.title, node.summary, ...layers);
    return node;
  }

  updateCard(node, card) {
    set(node, "transform", `translate(${card.x},${card.y})`);
    set(node.back, "width", card.width);
    set(node.back, "height", card.height);
    text(node.title, fit(card.name, card.width - 190, 650, 13.5));
    const bytes = card.ports.some((port) => port.rates)
      ? card.ports.reduce((sum, port) => sum + (port.rates?.received_bytes ?? 0), 0) : null;
    text(node.summary, `${many(card.ports.length, "port")} · ${bitRate(bytes)}`);
    set(node.summary, "x", card.width - 14);
    node.edges.show(card.edges, (edge) => edge.key, makeEdge, (line, edge) => this.updateEdge(line, edge));
    const foldable = card.canFold && !card.isFolded
      ? [...card.boxes, { type: "fold", key: `fold ${card.name}`, group: card.name, x: card.width / 2 - 50, y: 8, width: 100, height: 22 }] : card.boxes;
    node.boxes.show(foldable, (box) => box.key, (box) => this.makeBox(box), (one, box) => this.updateBox(one, box));
  }

  makeBox(box) {
    const isFold = box.type === "more" || box.type === "fold";
    const act = () => {
      if (!isFold) return this.onSelect(box.key);
      if (this.open.has(box.group)) this.open.delete(box.group);
      else this.open.add(box.group);
      return this.draw();
    };
    const node = button(act);
    node.back = svg("rect", { class: "box-back", rx: 8 });
    node.state = svg("path", { class: "state" });
    node.name = svg("text", { class: "box-name", y: 15 });
    node.line = svg("text", { class: "box-line", y: 29 });
    node.kind = svg("text", { class: "box-kind", y: 15 });
    node.hint = svg("title");
    node.append(node.hint, node.back, node.state, node.name, node.line, node.kind);
    return node;
  }

  updateBox(node, box) {
    const { name, line, narrow = line, kind, state, label } = describe(box);
    set(node, "class", `box ${box.type} ${state}${this.selected === box.key ? " selected" : ""}`);
    set(node, "transform", `translate(${box.x},${box.y})`);
    set(node, "aria-label", label);
    set(node, "aria-pressed", this.selected === box.key ? "true" : "false");
    set(node.back, "width", box.width);
    set(node.back, "height", box.height);
    const isMiddle = box.type === "more" || box.type === "fold";
    for (const part of [node.name, node.line]) set(part, "x", isMiddle ? box.width / 2 : 24);
    text(node.hint, label);
    set(node.state, "d", SHAPES[state] ?? "");
    const room = box.width - 32;
    // A long name needs the room of the kind, which the label has too.
    const shown = measure(name, 600, 12.5) + measure(kind, 400, 10.5) + 12 < room ? kind : "";
    text(node.kind, shown);
    set(node.kind, "x", box.width - 9);
    text(node.name, fit(name, room, 600, 12.5, 8));
    text(node.line, fit(box.width > 150 ? line : narrow, room, 400, 11));
  }

  updateEdge(node, edge) {
    set(node, "d", edge.path);
    const bits = edge.bytes * 8;
    const isBusy = bits >= 1 || edge.connections > 0;
    const isChosen = this.selected && (edge.a.key === this.selected || edge.b.key === this.selected);
    set(node, "class", `edge ${edge.kind}${isBusy ? "" : " idle"}${isChosen ? " chosen" : ""}`);
    set(node, "stroke-width", (1.4 + Math.max(0, Math.log10(bits + 1) - 3) * 0.8).toFixed(2));
    const load = edge.connections ? many(edge.connections, edge.kind === "mx" ? "pair of endpoints" : "connection") : bitRate(edge.bytes);
    text(node.firstChild, `${endOf(edge.a)} and ${endOf(edge.b)}: ${KINDS[edge.kind]}, ${load}`);
  }

  makeHost(host) {
    const node = button(() => this.onSelect(`peer ${host.name}`));
    node.back = svg("rect", { class: "box-back", rx: 10 });
    node.state = svg("path", { class: "state" });
    node.name = svg("text", { class: "box-name", x: 24, y: 22 });
    node.line = svg("text", { class: "box-line", x: 24, y: 40 });
    node.hint = svg("title");
    node.append(node.hint, node.back, node.state, node.name, node.line);
    return node;
  }

  updateHost(node, host) {
    const down = host.links.filter((link) => link.state === "down").length;
    const state = hostState(host.member, host.links);
    set(node, "class", `box host ${state}${this.selected === `peer ${host.name}` ? " selected" : ""}`);
    set(node, "transform", `translate(${host.x},${host.y})`);
    set(node.back, "width", host.width);
    set(node.back, "height", host.height);
    set(node.state, "d", SHAPES[state]);
    set(node.state, "transform", "translate(0,7)");
    text(node.name, fit(host.name, host.width - 34, 600, 12.5));
    const known = host.links.some((link) => link.rates), isNic = host.links.every((link) => link.nics);
    const bytes = host.links.reduce((sum, link) => sum + (link.rates?.sent_bytes ?? 0) + (link.rates?.received_bytes ?? 0), 0);
    const line = host.member ? memberLine(host.member, host.links) : down ? (host.links.length === 1 ? (host.links[0].nics ? "silent" : "link down") : `${down} of ${host.links.length} links down`) : isNic ? "MX NICs" : `${many(host.links.length, "link")} · ${bitRate(known ? bytes : null)}`;
    text(node.line, fit(line, host.width - 34, 400, 11));
    text(node.hint, `host ${host.name}: ${line}`);
    set(node, "aria-label", `host ${host.name}: ${line}`);
  }
}

// Returns the state of another host as a class: of its links, and of its lease if it is of the cluster.
export function hostState(member, links) {
  const down = links.filter((link) => link.state === "down").length;
  if (member?.state === "evicted" || links.length && down === links.length) return "down";
  if (down || member?.state === "unseen") return "part";
  return "up";
}

// Returns the state of a host of the cluster in words: its lease if it has none, and else its links.
function memberLine(member, links) {
  if (member.state === "evicted") return "evicted";
  const down = links.filter((link) => link.state === "down").length;
  const addresses = `${member.addresses} addr.`;
  if (member.state === "unseen") return down ? "unseen · link down" : `unseen · ${addresses}`;
  if (down) return links.length === 1 ? `link down · ${addresses}` : `${down} of ${links.length} links down`;
  return links.length ? `${many(links.length, "link")} · ${addresses}` : `no link · ${addresses}`;
}

// Shapes of states, so that colour is not the only sign: filled, half, hollow circle, square, triangle.
const CIRCLE = "M13,13a4.5,4.5 0 1 0 .01,0z";
const SHAPES = {
  running: CIRCLE, up: CIRCLE, open: CIRCLE, connected: "M13,13a4.5,4.5 0 1 0 .01,0zM13,13v9a4.5,4.5 0 0 0 0,-9z",
  listening: CIRCLE, connecting: CIRCLE, standby: CIRCLE, dormant: CIRCLE,
  faulted: "M9,13.5h8v8h-8z", down: "M9,13.5h8v8h-8z", "cut-off": "M13,12.5l5.2,9.5h-10.4z", problem: "M13,12.5l5.2,9.5h-10.4z", part: "M13,12.5l5.2,9.5h-10.4z",
};

// Returns a focusable group that acts as a button.
function button(act) {
  const onKey = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    act();
  };
  return svg("g", { tabindex: 0, role: "button", click: act, keydown: onKey });
}

// Names of kinds of traffic.
export const KINDS = { ethernet: "Ethernet", rdma: "RDMA", vsock: "AF_VSOCK", mx: "MX" };

// Returns the state of a port as a class.
export function portState(port) {
  if (port.cut_off) return "cut-off";
  return port.problem && port.state !== "faulted" ? "problem" : port.state;
}

// Returns the state of a port in words.
export function portWord(port) {
  return port.cut_off ? "cut off" : port.state;
}

// Returns the state of a link as a class.
export function linkState(link) {
  return link.is_standby && link.state !== "down" ? "standby" : link.state;
}

// Returns the texts of a box.
function describe(box) {
  if (box.type === "port") return describePort(box);
  if (box.type === "link") {
    const { link } = box, state = linkState(link);
    if (link.nics) {
      const pairs = link.nics.reduce((sum, nic) => sum + nic.pairs, 0);
      const line = link.state === "down" ? "silent" : `${many(link.nics.length, "NIC")} · ${many(pairs, "pair")}`;
      return { name: link.name, line, kind: "mx", state, label: `${link.name}: ${line}` };
    }
    const line = link.state === "down" ? `down: ${link.reason || "no answer"}` : `→ ${shortRate(link.rates?.sent_bytes)}  ← ${shortRate(link.rates?.received_bytes)}`;
    const narrow = link.state === "down" ? "down" : shortRate(link.rates && link.rates.sent_bytes + link.rates.received_bytes);
    return { name: link.name, line, narrow, kind: "link", state, label: `link ${link.name} to ${link.peer}, ${state}, ${line}` };
  }
  if (box.type === "processes") return { name: "this host", line: "processes", kind: "", state: "", label: "processes of this host" };
  if (box.type === "fold") return { name: "show fewer", line: "", kind: "", state: "", label: `show fewer ports of group ${box.group}` };
  const running = box.hidden.filter((port) => port.state === "running").length;
  const bytes = box.hidden.reduce((sum, port) => sum + (port.rates?.received_bytes ?? 0), 0);
  const line = `${running} running · ${bitRate(bytes)} received`;
  return { name: `show ${many(box.hidden.length, "more port")}`, line, kind: "", state: "", label: `show ${many(box.hidden.length, "more port")} of group ${box.group}: ${line}` };
}

function describePort({ port, connections }) {
  const state = portState(port), word = portWord(port);
  const sent = port.rates?.sent_bytes, received = port.rates?.received_bytes;
  const rates = `↑ ${shortRate(sent)}  ↓ ${shortRate(received)}`;
  const isRunning = port.state === "running" && !port.cut_off;
  const label = `port ${port.name}, ${port.kind}, ${word}, sends ${bitRate(sent)}, receives ${bitRate(received)}${port.problem ? `; ${port.problem}` : ""}`;
  const problem = port.problem ? `${word}: see Health` : word;
  if (!isRunning) return { name: port.name, line: problem, narrow: port.problem ? "see Health" : word, kind: port.kind, state, label };
  const open = many(connections, "connection"), isQuiet = !sent && !received;
  const line = port.kind !== "vsock" || !connections ? rates : isQuiet ? open : `${connections} conn. ${rates}`;
  const narrow = port.kind === "vsock" && isQuiet ? `${connections} conn.` : shortRate(port.rates && sent + received);
  return { name: port.name, line, narrow, kind: port.kind, state, label };
}

function endOf(box) {
  return box.port?.name ?? box.link?.name ?? (box.type === "more" ? "other ports" : "this host");
}

function makeEdge() {
  return svg("path", {}, svg("title"));
}

function makeWire() {
  return svg("path", {}, svg("title"));
}

function updateWire(node, wire) {
  set(node, "d", wire.path);
  set(node, "class", `wire ${linkState(wire.link)}`);
  text(node.firstChild, `link ${wire.link.name} to ${wire.link.peer}: ${linkState(wire.link)}`);
}
