// Tables beside the graph, with the same objects: sortable, filtered, and limited in length.

import { Keyed, el, set, text } from "./dom.js";
import { count, endName, many, microseconds, rate, reason, shortRate } from "./format.js";
import { KINDS, linkState, portState, portWord } from "./graph.js";

const ROWS_MAX = 300;

// A column: title, text of a row, value to sort by, whether it is a number.
const number = (title, value, show) => ({ title, value, show: (row) => show(value(row)), isNumber: true });
const word = (title, value, show = value) => ({ title, value, show });
const sent = number("Sent", (row) => row.rates?.sent_bytes ?? null, shortRate);
const received = number("Received", (row) => row.rates?.received_bytes ?? null, shortRate);

// Of AF_VSOCK and MX the connections are known, and not the rates of each.
const isCounted = (talk) => talk.kind === "vsock" || talk.kind === "mx";

// Classes of the states of hosts of the cluster.
const MEMBER_STATES = { seen: "up", unseen: "part", evicted: "down" };

const TABLES = [
  {
    id: "ports", title: "Ports", rows: (daemon) => daemon.ports, key: (port) => `port ${port.name}`, sort: 0,
    columns: [
      word("Port", (port) => port.name), word("Group", (port) => port.group),
      { ...word("State", portState, portWord), isState: true },
      sent, received, number("Drops/s", (port) => port.rates?.drops ?? null, rate),
    ],
  },
  {
    id: "links", title: "Links", rows: (daemon) => daemon.links, key: (link) => `link ${link.name}`, sort: 0,
    columns: [
      word("Link", (link) => link.name), word("Host", (link) => link.peer),
      { ...word("State", (link) => linkState(link)), isState: true },
      number("RTT", (link) => link.rtt_us ?? null, (value) => value === null ? "–" : microseconds(value)),
      number("Loss", (link) => link.loss_percent ?? null, (value) => value === null ? "–" : `${value} %`), sent, received,
    ],
  },
  {
    id: "hosts", title: "Hosts", rows: (daemon) => daemon.cluster?.hosts ?? [], key: (host) => `peer ${host.name}`, sort: 0,
    columns: [
      word("Host", (host) => host.name), { ...word("State", (host) => MEMBER_STATES[host.state], (host) => host.state), isState: true },
      number("Links", (host) => host.links.length, count), number("Addresses", (host) => host.addresses, count),
      word("Groups", (host) => host.groups.join(", ")),
    ],
  },
  {
    id: "traffic", title: "Traffic", rows: (daemon) => daemon.talks, sort: 3, isDown: true,
    key: (talk) => `${talk.group} ${talk.kind} ${endName(talk.from)} ${endName(talk.to)}`,
    select: (talk) => talk.from.type === "host" ? `port ${talk.to.name}` : `${talk.from.type} ${talk.from.name}`,
    columns: [
      word("Between", (talk) => endName(talk.from)), word("And", (talk) => endName(talk.to)),
      word("Kind", (talk) => talk.kind, (talk) => KINDS[talk.kind]),
      number("Forth", (talk) => isCounted(talk) ? null : talk.forth, shortRate),
      number("Back", (talk) => isCounted(talk) ? null : talk.back, shortRate),
      number("Open", (talk) => isCounted(talk) ? talk.connections : null, (value) => value === null ? "–" : count(value)),
    ],
  },
  {
    id: "drops", title: "Drops", sort: 2, isDown: true, key: (drop) => `${drop.object} ${drop.reason}`, select: (drop) => drop.object,
    rows: (daemon) => [["port", daemon.ports], ["link", daemon.links]].flatMap(([type, all]) => all.flatMap((one) =>
      (one.drops ?? []).map((drop) => ({ ...drop, name: one.name, object: `${type} ${one.name}` })))),
    columns: [
      word("Port or link", (drop) => drop.name), word("Reason", (drop) => reason(drop.reason)),
      number("Per second", (drop) => drop.rate ?? null, rate), number("Total", (drop) => drop.total, count),
    ],
  },
  {
    id: "threads", title: "Threads", rows: (daemon) => daemon.dispatchers, key: (one) => `dispatcher ${one.number}`, sort: 0,
    columns: [
      number("Dispatcher", (one) => one.number, String), number("CPU", (one) => one.cpu ?? null, (value) => value === null ? "any" : String(value)),
      { ...number("Busy", (one) => one.busy_percent, (value) => `${value} %`), isBar: true },
      number("Stalls", (one) => one.stalls_total, count),
      word("Serves", (one) => one.shards.map((shard) => `${shard.group}/${shard.service} ${shard.busy_percent} %`).join(", ")),
    ],
  },
];

// The tabs and the table. `onSelect` gets the key of a chosen object.
export class Tables {
  constructor({ tabs, filter, table }, onSelect) {
    this.onSelect = onSelect;
    this.parts = { filter, table };
    this.sort = new Map(TABLES.map((one) => [one.id, { column: one.sort, isDown: Boolean(one.isDown) }]));
    this.tabs = TABLES.map((one) => el("button", { type: "button", role: "tab", id: `tab-${one.id}`, click: () => this.choose(one.id), keydown: (event) => this.move(event) }, one.title, el("span", { class: "badge" })));
    tabs.append(...this.tabs);
    filter.addEventListener("input", () => this.draw());
    this.choose("ports");
  }

  // Shows a state; `selected` is the key of the chosen object.
  show(daemon, selected) {
    this.daemon = daemon;
    this.selected = selected;
    this.draw();
  }

  // Chooses a table.
  choose(id) {
    this.current = TABLES.find((one) => one.id === id);
    TABLES.forEach((one, at) => {
      set(this.tabs[at], "aria-selected", one === this.current ? "true" : "false");
      set(this.tabs[at], "tabindex", one === this.current ? 0 : -1);
    });
    set(this.parts.table, "aria-labelledby", `tab-${id}`);
    this.heads = this.current.columns.map((column, at) => el("th", { scope: "col", class: column.isNumber ? "number" : null },
      el("button", { type: "button", click: () => this.order(at) }, column.title)));
    const body = el("tbody");
    this.rows = new Keyed(body);
    this.note = el("p", { class: "note" });
    this.parts.table.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, this.heads)), body), this.note);
    this.draw();
  }

  // Moves between tabs by the arrow keys.
  move(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    let at = TABLES.indexOf(this.current);
    do at = (at + step + TABLES.length) % TABLES.length;
    while (this.tabs[at].hidden);
    this.choose(TABLES[at].id);
    this.tabs[at].focus();
  }

  // Sorts by a column, or reverses its order.
  order(column) {
    const sort = this.sort.get(this.current.id);
    const isDown = sort.column === column ? !sort.isDown : Boolean(this.current.columns[column].isNumber);
    this.sort.set(this.current.id, { column, isDown });
    this.draw();
  }

  draw() {
    if (!this.daemon) return;
    // Without a cluster there is no table of its hosts.
    TABLES.forEach((one, at) => set(this.tabs[at], "hidden", one.id === "hosts" && !this.daemon.cluster));
    TABLES.forEach((one, at) => text(this.tabs[at].lastChild, count(one.rows(this.daemon).length)));
    const table = this.current, sort = this.sort.get(table.id), { columns } = table;
    this.heads.forEach((head, at) => set(head, "aria-sort", at === sort.column ? (sort.isDown ? "descending" : "ascending") : null));
    const wanted = this.parts.filter.value.trim().toLowerCase();
    const all = table.rows(this.daemon);
    const found = wanted ? all.filter((row) => columns.some((column) => String(column.show(row)).toLowerCase().includes(wanted))) : [...all];
    const { value } = columns[sort.column];
    found.sort((a, b) => compare(value(a), value(b)) * (sort.isDown ? -1 : 1) || compare(columns[0].value(a), columns[0].value(b)));
    const shown = found.slice(0, ROWS_MAX);
    this.rows.show(shown, table.key, (row) => this.makeRow(row), (node, row) => this.updateRow(node, row));
    text(this.note, found.length > shown.length ? `${count(shown.length)} of ${many(found.length, "row")} are shown; filter to see others.`
      : found.length ? "" : all.length ? "Nothing fits the filter." : EMPTY[table.id]);
  }

  makeRow() {
    const { columns } = this.current;
    const row = el("tr", {}, columns.map((column, at) => el(at ? "td" : "th", { scope: at ? null : "row", class: column.isNumber ? "number" : null },
      at ? [] : el("button", { type: "button", class: "row-button", click: () => this.pick(row.key) }))));
    row.addEventListener("click", (event) => event.target.closest("button") || this.pick(row.key));
    return row;
  }

  // Selects the object of a row.
  pick(key) {
    if (key) this.onSelect(key);
  }

  updateRow(node, row) {
    const { columns, key, select } = this.current;
    node.key = this.current.id === "threads" ? null : (select ?? key)(row);
    set(node, "class", node.key === this.selected ? "selected" : null);
    columns.forEach((column, at) => {
      const cell = node.children[at], shown = String(column.show(row));
      text(at ? cell : cell.firstChild, shown);
      set(cell, "title", shown.length < 14 ? null : shown);
      if (column.isState) set(cell, "class", `state-cell ${column.value(row)}`);
      if (column.isBar) cell.style.setProperty("--part", `${column.value(row)}%`);
      if (column.isBar) set(cell, "class", "number bar-cell");
    });
  }
}

const EMPTY = {
  ports: "No ports.", links: "No links to other hosts.", hosts: "This host is in no cluster.", traffic: "No traffic in the last seconds.",
  drops: "Nothing was dropped or rejected.", threads: "No dispatchers.",
};

// Compares two texts or numbers; absent values come last in ascending order.
function compare(a, b) {
  if (typeof a === "string") return a.localeCompare(b, "en", { numeric: true });
  return (a ?? -1) - (b ?? -1);
}
