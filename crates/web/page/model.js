// Completes a state for the page: problems of ports, hosts of the cluster, and NICs of other hosts as
// ways beside the links.

// Marks ports with problems, and adds `ways`: the links, and one way for the NICs of a host that NICs
// (ports of kind mx) of a group know. Pairs of endpoints become traffic with such a way.
export function complete(daemon) {
  const problems = new Map(daemon.findings.map((finding) => [finding.object, finding.text]));
  for (const port of daemon.ports) port.problem = problems.get(`port ${port.name}`);
  const ways = new Map();
  for (const nic of daemon.nics) {
    const name = wayName(nic);
    const way = ways.get(`${nic.group} ${name}`) ?? { name, group: nic.group, kind: "mx", peer: nic.host, state: "down", reason: "silent", nics: [] };
    if (nic.state === "answers") Object.assign(way, { state: "up", reason: "" });
    way.nics.push(nic);
    ways.set(`${nic.group} ${name}`, way);
  }
  // A link of the cluster leads to a host by its name, and not by its address.
  const members = new Map((daemon.cluster?.hosts ?? []).map((member) => [member.name, member]));
  const owners = new Map([...members.values()].flatMap((member) => member.links.map((link) => [link, member.name])));
  for (const link of daemon.links) link.peer = owners.get(link.name) ?? link.peer;
  daemon.members = members;
  daemon.ways = [...daemon.links, ...ways.values()];
  for (const nic of daemon.nics) {
    if (nic.state !== "answers" && nic.pairs === 0) continue;
    daemon.talks.push({ group: nic.group, kind: "mx", from: { type: "port", name: nic.port }, to: { type: "link", name: wayName(nic) }, forth: 0, back: 0, connections: nic.pairs });
  }
  return daemon;
}

function wayName(nic) {
  return `NICs of ${nic.host}`;
}
