// The details of the chosen port, link or host.

import { el } from "./dom.js";
import { bitRate, count, endName, many, microseconds, rate, reason, shortRate, size } from "./format.js";
import { hostState, linkState, portState, portWord } from "./graph.js";

// Shows the object of this key in an element; hides the element if there is none.
export function showDetail(parent, daemon, selected, close) {
  const [type, ...words] = (selected ?? "").split(" ");
  const name = words.join(" ");
  const found = { port: () => port(daemon, name), link: () => link(daemon, name), peer: () => peer(daemon, name), host: () => processes(daemon, name) }[type]?.();
  parent.hidden = !found;
  if (!found) return;
  const hadFocus = parent.contains(document.activeElement);
  const button = el("button", { type: "button", class: "quiet", "aria-label": "Close the details", click: close }, "✕");
  parent.replaceChildren(
    el("div", { class: "panel-head" }, el("h2", {}, found.title), el("span", { class: `chip ${found.state}` }, found.stateText ?? found.state), button),
    ...found.notes.map((note) => el("p", { class: "detail-note" }, note)),
    el("dl", {}, found.facts.filter(([, value]) => value).map(([label, value]) => el("div", {}, el("dt", {}, label), el("dd", { title: value }, value)))),
    ...lists(found),
    found.command ? el("p", { class: "command" }, el("code", {}, found.command)) : "",
  );
  if (hadFocus) button.focus();
}

function lists({ drops = [], talks = [], rows = [] }) {
  const item = (label, value) => el("li", {}, el("span", {}, label), el("span", { class: "number" }, value));
  return [
    el("ul", {}, rows.map(([label, value]) => item(label, value))),
    talks.length ? el("h3", {}, "Traffic with") : "",
    el("ul", {}, talks.slice(0, 6).map((talk) => item(talk.name, talk.load))),
    drops.length ? el("h3", {}, "Drops by reason") : "",
    el("ul", {}, drops.slice(0, 6).map((drop) => item(reason(drop.reason), `${count(drop.total)}${drop.rate ? ` · ${rate(drop.rate)}/s` : ""}`))),
  ];
}

// Returns the traffic of a member with others, the busiest first.
function talksOf(daemon, type, name) {
  const is = (end) => end.type === type && (type === "host" || end.name === name);
  return daemon.talks.filter((talk) => is(talk.from) || is(talk.to)).map((talk) => ({
    name: endName(is(talk.from) ? talk.to : talk.from),
    load: talk.kind === "vsock" ? many(talk.connections, "connection") : talk.kind === "mx" ? many(talk.connections, "pair") : bitRate(talk.forth + talk.back),
  }));
}

function port(daemon, name) {
  const one = daemon.ports.find((each) => each.name === name);
  if (!one) return null;
  return {
    title: one.name, state: portState(one), stateText: portWord(one),
    notes: [one.cut_off ?? one.problem, one.state === "faulted" ? one.fault : null, ...(one.warnings ?? [])].filter((note, at, all) => note && all.indexOf(note) === at),
    facts: [
      ["Group", one.group], ["Kind", one.kind], ["VM", one.vm], ["Address", one.address],
      ["Sends", traffic(one.rates?.sent_bytes, one.rates?.sent_packets)], ["Receives", traffic(one.rates?.received_bytes, one.rates?.received_packets)],
      ["Guest memory", one.memory_bytes ? size(one.memory_bytes) : null], ["Running queues", one.queues ? String(one.queues) : null],
      ["Dispatcher", String(one.dispatcher)], ["Held", one.held ? "yes" : null],
      ["Connects", count(one.connects_total)], ["Faults", one.faults_total ? count(one.faults_total) : null],
    ],
    drops: one.drops, talks: talksOf(daemon, "port", name), command: `causeway port show ${name}`,
  };
}

function link(daemon, name) {
  const one = daemon.ways.find((each) => each.name === name);
  if (!one) return null;
  if (one.nics) return nics(daemon, one);
  return {
    title: one.name, state: linkState(one), notes: [one.reason].filter(Boolean),
    facts: [
      ["Group", one.group], ["Kind", one.kind], ["Host", one.peer], ["Endpoint", one.endpoint],
      ["Sends", traffic(one.rates?.sent_bytes, one.rates?.sent_packets)], ["Receives", traffic(one.rates?.received_bytes, one.rates?.received_packets)],
      ["Round trip", one.rtt_us === undefined ? null : microseconds(one.rtt_us)], ["Loss", one.loss_percent === undefined ? null : `${one.loss_percent} %`],
      ["Largest frame", `${count(one.mtu)} B`],
    ],
    drops: one.drops, talks: talksOf(daemon, "link", name), command: `causeway link show ${name}`,
  };
}

function nics(daemon, way) {
  const load = (nic) => `${nic.state}, ${many(nic.pairs, "pair")}${nic.rtt_us === undefined ? "" : `, ${microseconds(nic.rtt_us)}`}`;
  return {
    title: way.name, state: way.state, stateText: way.state === "up" ? "answers" : "silent", notes: [],
    facts: [], rows: way.nics.slice(0, 30).map((nic) => [nic.name, load(nic)]), talks: talksOf(daemon, "link", way.name), command: "causeway peer list",
  };
}

function peer(daemon, name) {
  const links = daemon.ways.filter((each) => each.peer === name);
  const member = daemon.members.get(name);
  if (!links.length && !member) return null;
  const down = links.filter((each) => each.state === "down").length;
  return {
    title: name, state: member ? hostState(member, links) : down ? "down" : "up",
    stateText: member && (member.state !== "seen" || !links.length) ? member.state : down ? `${down} of ${many(links.length, "link")} down` : `${many(links.length, "link")} up`,
    notes: [member?.reason].filter(Boolean),
    facts: member ? [["Site", daemon.cluster.site], ["Lease", member.state === "seen" ? "alive" : null], ["Endpoint", member.endpoint], ["Groups", member.groups.join(", ")], ["Addresses", count(member.addresses)]] : [], rows: links.slice(0, 30).map((each) => [each.name, each.nics ? `${each.group}, ${many(each.nics.length, "NIC")}` : `${each.group}, ${linkState(each)}, → ${bitRate(each.rates?.sent_bytes)} ← ${bitRate(each.rates?.received_bytes)}`]),
    command: member ? "causeway cluster hosts" : "causeway link list",
  };
}

function processes(daemon, group) {
  return {
    title: "Processes of this host", state: "", stateText: `group ${group}`, notes: [], facts: [],
    talks: talksOf({ talks: daemon.talks.filter((talk) => talk.group === group) }, "host", ""), command: `causeway connection list --group ${group}`,
  };
}

function traffic(bytes, packets) {
  return bytes === undefined ? "–" : `${shortRate(bytes)} · ${rate(packets)}/s`;
}
