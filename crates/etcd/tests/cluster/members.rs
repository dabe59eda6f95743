//! An etcd of three members, of which one fails at a time.

use std::process::Command;

use causeway_testing::folder::Folder;

use crate::hosts::{Host, Running, cross, free_port, mac, post, stream, udp_port, wait};

/// Three members of one etcd.
struct Members {
    folder: Folder,
    /// Ports of clients and of peers.
    ports: [(u16, u16); 3],
    processes: [Option<Running>; 3],
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

impl Members {
    fn start() -> Self {
        let ports = [(); 3].map(|()| (free_port(), free_port()));
        let folder = Folder::new("members");
        let mut members = Self { folder, ports, processes: [None, None, None] };
        (0..3).for_each(|number| members.start_member(number));
        members.leader();
        members
    }

    fn start_member(&mut self, number: usize) {
        let (client, peer) = (url(self.ports[number].0), url(self.ports[number].1));
        let all = (0..3).map(|member| format!("m{member}={}", url(self.ports[member].1)));
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("m{number}"), "--log-level", "error"]);
        command.arg("--data-dir").arg(self.folder.join(format!("m{number}")));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &all.collect::<Vec<_>>().join(",")]);
        command.args(["--heartbeat-interval", "50", "--election-timeout", "500"]);
        self.processes[number] = Some(Running::start_quiet(&mut command).unwrap());
    }

    /// Waits until the members that run agree on a leader; returns its number.
    fn leader(&self) -> usize {
        wait("the members have a leader", || {
            let mut leader = None;
            for (number, (port, _)) in self.ports.iter().enumerate() {
                if self.processes[number].is_none() {
                    continue;
                }
                std::net::TcpStream::connect(("127.0.0.1", *port)).ok()?;
                let status = post(*port, "/v3/maintenance/status", "{}", None);
                let of = status["leader"].as_str().filter(|of| *of != "0")?.to_owned();
                if status["header"]["member_id"] == of {
                    leader = Some(number);
                }
            }
            leader
        })
    }

    fn kill(&mut self, number: usize) {
        self.processes[number].take().unwrap().kill();
    }

    fn urls(&self) -> String {
        self.ports.map(|(client, _)| url(client)).join(",")
    }

    fn verb(&self, args: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_causeway-directory"));
        command.args(["--etcd", &self.urls(), "--site", "lab"]).args(args);
        assert!(command.status().unwrap().success(), "{args:?}");
    }
}

#[test]
fn cluster_follows_an_etcd_of_which_a_member_fails() {
    let mut members = Members::start();
    members.verb(&["init", "--group", "blue=7"]);
    let (port, urls) = (udp_port(), members.urls());
    let a = Host::start_at((1, "h1"), urls.clone(), port, None);
    let b = Host::start_at((2, "h2"), urls, port, None);
    let (mut on_a, mut on_b) = (a.attach(0), b.attach(0));
    let to_b = (mac(1, 0), mac(2, 0));
    cross(&mut on_a, to_b, &mut on_b);

    let mut guests = Vec::new();
    let mut fail = |members: &mut Members, number: usize, guest: u8| {
        members.kill(number);
        stream(&mut on_a, to_b, &mut on_b, 50);
        guests.push(b.attach(guest));
        let last = format!("52:54:00:00:02:{guest:02x}");
        a.await_view("/v1/cluster/addresses", |all| {
            all.as_array().is_some_and(|all| all.iter().any(|known| known["address"] == last))
        });
        a.await_state("follows");
        members.start_member(number);
        members.leader();
    };
    // The member that both hosts use, and then the leader, wherever it is.
    fail(&mut members, 0, 1);
    let leader = members.leader();
    fail(&mut members, leader, 2);
    // A new host begins while a member is away.
    // A verb takes the next member if the first does not answer.
    members.leader();
    members.kill(0);
    members.verb(&["group", "add", "red", "--vni", "8"]);
    let c = Host::start_at((3, "h3"), members.urls(), port, None);
    c.await_view("/v1/cluster/addresses", |all| all.as_array().is_some_and(|all| all.len() == 4));
}
