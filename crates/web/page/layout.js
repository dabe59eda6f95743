// Places groups, ports, links and hosts. Pure: the same state and width give the same picture, and no
// two boxes overlap.
//
// Each group is a card. Its ports stand in two columns, the ports of a VM together; links are below
// the right column, processes of this host below the left one. A group of more than OPEN_MAX ports
// shows the SHOWN most important ones, and a box for the others. Hosts stand in a column at the right,
// or below the cards on a narrow page.

export const OPEN_MAX = 16;
const SHOWN = 12;
const CARDS_MAX = 60;
const EDGES_MAX = 80;
const HOSTS_MAX = 40;
const GAP = 16;
const HEAD = 38;
const ROW = 44;
const BOX = 36;
const HOST = 150;
const HOST_BOX = 54;
const GUTTER = 46;
const FRAME_HEAD = 28;

// Returns the picture of a state at this width, in pixels. `open` has the names of groups that show
// all ports.
export function layout(daemon, width, open) {
  const groups = daemon.groups.map((group) => collect(daemon, group, open));
  groups.sort((a, b) => b.urgent - a.urgent || byName(a.name, b.name));
  const shown = groups.slice(0, CARDS_MAX);
  shown.sort((a, b) => byName(a.name, b.name));
  const linked = new Set(daemon.ways.map((link) => link.peer));
  // Of a large cluster, hosts without links are in the table only.
  const others = [...daemon.members.keys()].filter((name) => !linked.has(name)).sort(byName).slice(0, Math.max(0, HOSTS_MAX - linked.size));
  const names = [...linked, ...others].sort(byName);
  const isNarrow = width < 640;
  const gutter = names.length ? (isNarrow ? 22 : GUTTER) : 0;
  const frame = width - (names.length ? gutter + (isNarrow ? 0 : HOST) : 0);
  const pad = isNarrow ? 8 : 12;
  const area = frame - 2 * pad;
  const columns = Math.max(1, Math.min(shown.length, Math.floor((area + GAP) / (360 + GAP))));
  const cardWidth = (area - GAP * (columns - 1)) / columns;
  const cards = shown.map((group) => card(group, cardWidth, pad));
  let y = FRAME_HEAD;
  for (let at = 0; at < cards.length; at += columns) {
    const row = cards.slice(at, at + columns);
    const height = Math.max(...row.map((one) => one.height));
    row.forEach((one, column) => {
      Object.assign(one, { x: pad + column * (cardWidth + GAP), y, height, isLast: column === columns - 1, below: y + height + GAP / 2 });
    });
    y += height + GAP;
  }
  const frameHeight = y - GAP + pad;
  const hosts = placeHosts(daemon, names, { isNarrow, frame, frameHeight, width, gutter });
  const wires = cards.flatMap((one) => wiresOf(one, hosts));
  // Wires side by side in the gutter; the lane of the last group is the nearest, so that few cross.
  wires.forEach((wire, at) => route(wire, frame + (isNarrow ? 4 : 12) + ((wires.length - 1 - at) % (isNarrow ? 4 : 6)) * 4.5));
  const last = hosts.at(-1);
  const height = Math.max(frameHeight, last ? last.y + last.height : 0) + 2;
  return { width, height, frame, frameHeight, cards, hosts, wires, omitted: groups.length - shown.length, isNarrow };
}

// Returns the members of a group and their traffic.
function collect(daemon, group, open) {
  const ports = daemon.ports.filter((port) => port.group === group.name);
  const links = daemon.ways.filter((link) => link.group === group.name);
  const talks = daemon.talks.filter((talk) => talk.group === group.name);
  const isFolded = ports.length > OPEN_MAX && !open.has(group.name);
  const byWeight = isFolded ? [...ports].sort((a, b) => weight(b) - weight(a) || byName(a.name, b.name)) : ports;
  const visible = isFolded ? byWeight.slice(0, SHOWN) : byWeight;
  const hidden = isFolded ? byWeight.slice(SHOWN) : [];
  const urgent = ports.filter(isUrgent).length + links.filter((link) => link.state === "down").length;
  return { name: group.name, group, ports, links, talks, visible, hidden, urgent, isFolded, canFold: ports.length > OPEN_MAX };
}

// Returns whether a port needs an operator.
export function isUrgent(port) {
  return port.state === "faulted" || Boolean(port.cut_off) || Boolean(port.problem);
}

// Returns the importance of a port: problems first, then traffic, then connected guests.
function weight(port) {
  const traffic = port.rates ? port.rates.sent_bytes + port.rates.received_bytes : 0;
  return (isUrgent(port) ? 1e15 : 0) + traffic + (port.state === "running" ? 1 : 0);
}

// Returns a card with its boxes and edges, relative to its corner.
function card(group, width, pad) {
  const middle = width < 400 ? 44 : 72;
  const boxWidth = Math.min(200, Math.max(96, (width - 2 * pad - middle) / 2));
  const left = [], right = [], connections = new Map();
  for (const talk of group.talks) {
    for (const end of [talk.from, talk.to]) connections.set(end.name, (connections.get(end.name) ?? 0) + talk.connections);
  }
  for (const ports of byVm(group.visible)) {
    const side = left.length <= right.length ? left : right;
    for (const port of ports) side.push({ type: "port", key: `port ${port.name}`, port, connections: connections.get(port.name) ?? 0 });
  }
  const hasHost = group.talks.some((talk) => talk.from.type === "host" || talk.to.type === "host");
  if (hasHost) left.push({ type: "processes", key: `host ${group.name}` });
  for (const link of group.links) right.push({ type: "link", key: `link ${link.name}`, link });
  const boxes = new Map();
  const place = (side, x, inner) => side.forEach((box, row) => {
    Object.assign(box, { x, y: HEAD + row * ROW, width: boxWidth, height: BOX, inner, isLeft: inner > x });
    boxes.set(box.key, box);
  });
  place(left, pad, pad + boxWidth);
  place(right, width - pad - boxWidth, width - pad - boxWidth);
  let rows = Math.max(left.length, right.length);
  if (group.hidden.length) {
    const more = { type: "more", key: `more ${group.name}`, hidden: group.hidden, group: group.name };
    Object.assign(more, { x: pad, y: HEAD + rows * ROW, width: width - 2 * pad, height: BOX });
    boxes.set(more.key, more);
    rows += 1;
  }
  const height = HEAD + Math.max(1, rows) * ROW + pad - (ROW - BOX);
  return { key: group.name, ...group, width, height, boxes: [...boxes.values()], edges: edges(group, boxes) };
}

// Compares names as people do: vm2 before vm10.
function byName(a, b) {
  return a.localeCompare(b, "en", { numeric: true });
}

// Returns ports by VM, in the order of names.
function byVm(ports) {
  const vms = new Map();
  for (const port of ports) vms.set(port.vm, [...(vms.get(port.vm) ?? []), port]);
  return [...vms.entries()].sort((a, b) => byName(a[0], b[0])).map(([, all]) => all.sort((a, b) => byName(a.name, b.name)));
}

// Returns the edges of a card: talks between visible boxes, with those of hidden ports summed up.
function edges(group, boxes) {
  const more = boxes.get(`more ${group.name}`);
  const boxOf = (end) => boxes.get(end.type === "host" ? `host ${group.name}` : `${end.type} ${end.name}`) ?? more;
  const sums = new Map();
  for (const talk of group.talks) {
    const a = boxOf(talk.from), b = boxOf(talk.to);
    if (!a || !b || a === b) continue;
    const key = `${talk.kind} ${[a.key, b.key].sort().join(" ")}`;
    const sum = sums.get(key) ?? { key, kind: talk.kind, a, b, bytes: 0, connections: 0, talks: 0 };
    sum.bytes += talk.forth + talk.back;
    sum.connections += talk.connections;
    sum.talks += 1;
    sums.set(key, sum);
  }
  const all = [...sums.values()].sort((a, b) => b.bytes - a.bytes).slice(0, EDGES_MAX);
  // Edges of one box that meet at one point would hide each other: the kinds are set apart.
  const offset = { ethernet: -5, rdma: 0, vsock: 5, mx: 0 };
  for (const edge of all) edge.path = curve(edge.a, edge.b, offset[edge.kind]);
  return all;
}

// Returns the path of an edge between the inner sides of two boxes.
function curve(a, b, offset) {
  const at = (box) => box.type === "more"
    ? { x: box.x + box.width / 2 + offset, y: box.y, down: true }
    : { x: box.inner, y: box.y + box.height / 2 + offset, toRight: box.isLeft };
  const from = at(a), to = at(b);
  const reach = Math.max(24, Math.min(90, Math.abs(from.x - to.x) / 2 + Math.abs(from.y - to.y) / 4));
  const lead = (point) => point.down ? [point.x, point.y - 40] : [point.x + (point.toRight ? reach : -reach), point.y];
  return `M${xy(from)}C${lead(from)} ${lead(to)} ${xy(to)}`;
}

function xy(point) {
  return [point.x, point.y].map((value) => Math.round(value * 10) / 10).join(",");
}

// Places the hosts at the far ends of links.
function placeHosts(daemon, names, { isNarrow, frame, frameHeight, gutter, width }) {
  const step = HOST_BOX + 14;
  const wide = Math.min(frame, width - gutter);
  return names.map((name, at) => {
    const links = daemon.ways.filter((link) => link.peer === name);
    const place = isNarrow
      ? { x: 0.5, y: frameHeight + 30 + at * step, width: wide }
      : { x: frame + gutter, y: FRAME_HEAD + at * step, width: HOST - 1 };
    return { key: name, name, links, member: daemon.members.get(name), height: HOST_BOX, isBelow: isNarrow, ...place };
  });
}

// Returns the wires from a card's links to their hosts, with their ends.
function wiresOf(one, hosts) {
  return one.boxes.filter((box) => box.type === "link").map((box, at) => {
    const host = hosts.find((each) => each.name === box.link.peer);
    const row = host.links.indexOf(box.link);
    const part = (row + 1) / (host.links.length + 1);
    const start = { x: one.x + box.x + box.width, y: one.y + box.y + box.height / 2 };
    const end = { x: host.isBelow ? host.x + host.width : host.x, y: host.y + HOST_BOX * part };
    const side = one.isLast ? null : { x: one.x + one.width + GAP / 2, y: one.below - (at % 3) * 3 };
    return { key: `${one.name} ${box.link.name}`, link: box.link, start, end, side };
  });
}

// Gives a wire its path: out of the card, and along a lane in the gutter right of the frame.
function route(wire, lane) {
  const { start, end, side } = wire;
  const out = side ? [{ x: side.x, y: start.y }, side, { x: lane, y: side.y }] : [{ x: lane, y: start.y }];
  wire.path = rounded([start, ...out, { x: lane, y: end.y }, end]);
}

// Returns a path of straight lines with rounded corners.
function rounded(points) {
  let path = `M${xy(points[0])}`;
  for (let at = 1; at < points.length - 1; at += 1) {
    const [before, corner, after] = points.slice(at - 1, at + 2);
    const toward = (target) => {
      const length = Math.hypot(target.x - corner.x, target.y - corner.y);
      const part = length ? Math.min(7, length / 2) / length : 0;
      return { x: corner.x + (target.x - corner.x) * part, y: corner.y + (target.y - corner.y) * part };
    };
    path += `L${xy(toward(before))}Q${xy(corner)} ${xy(toward(after))}`;
  }
  return `${path}L${xy(points.at(-1))}`;
}
