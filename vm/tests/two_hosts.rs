//! Virtual machines on two hosts, connected by one Ethernet.

mod common;

use causeway_guest_tool::limits::STREAM_PORT;
use causeway_guest_tool::transport::Target;
use causeway_vm::daemon::Member;
use causeway_vm::{Daemon, Guest, Machine, traffic};
use common::LIMIT;
use common::hosts::{TestHosts, await_state, counter, show, wait};

/// The guests' MTU, over cables with MTU 1500.
const JUMBO: u16 = 9000;

/// A guest on each host, and a link between the hosts. Guests drop first.
struct Pair {
    guests: Vec<Guest>,
    members: [Member; 2],
    daemons: [Daemon; 2],
    test_hosts: TestHosts,
}

impl Pair {
    fn joined_by(kind: &str) -> Option<Self> {
        let test_hosts = TestHosts::new(&[1500])?;
        let mut members = [Member::new("one", "blue", 1), Member::new("two", "blue", 2)];
        members.iter_mut().for_each(|member| member.mtu = JUMBO);
        let daemons = [0, 1].map(|host| {
            let link = test_hosts.link(host, "link", kind, 0, "");
            test_hosts.daemon(host, &members[host..=host], &link)
        });
        let specs = daemons.iter().zip(&members).map(|(daemon, member)| {
            let mut spec = daemon.guest(member);
            spec.reconnects = true;
            spec
        });
        let guests = Guest::boot_all(&Machine::qemu().unwrap(), specs.collect()).unwrap();
        Some(Self { guests, members, daemons, test_hosts })
    }

    fn expect<T>(&self, what: &str, result: causeway_vm::Result<T>) -> T {
        let link = |host: usize| show(&self.daemons[host], "link");
        result.unwrap_or_else(|e| panic!("{what}: {e}\n{:#}\n{:#}", link(0), link(1)))
    }

    /// Cuts the cable during a stream, long enough for both hosts to detect it, and restores it.
    fn flap_under_a_stream(&self, bytes: u64) {
        let target: Target = format!("tcp:{}:{STREAM_PORT}", self.members[1].ip()).parse().unwrap();
        let all = |state| self.daemons.iter().for_each(|daemon| await_state(daemon, "link", state));
        let sent = || counter(&self.daemons[0], "link", "transmit_packets_total");
        std::thread::scope(|scope| {
            let before = sent();
            let stream =
                scope.spawn(|| traffic::stream(&self.guests[0], &target, 65_536, bytes, LIMIT));
            for far in [1, 0] {
                let begun = before + 100;
                wait(|| sent() > begun, || "the stream does not begin".to_owned());
                self.test_hosts.nets[far].ip("link set cable0 down").unwrap();
                all("down");
                assert!(!stream.is_finished(), "the stream ended before the cut");
                self.test_hosts.nets[far].ip("link set cable0 up").unwrap();
                all("up");
            }
            let done = self.expect("a stream over a cable that was cut", stream.join().unwrap());
            assert_eq!(done.total_bytes, bytes);
        });
    }

    /// Exchanges pings, jumbo frames, and a stream of `bytes` bytes, in both directions.
    fn talk(&self, bytes: u64) {
        for (from, to) in [(0, 1), (1, 0)] {
            let (guest, ip) = (&self.guests[from], self.members[to].ip());
            let ping = self.expect("ping", traffic::ping(guest, &ip, 20));
            assert!(ping.received > 0, "host {from}: {ping:?}");
            // A full frame of 9000 bytes: the guest's kernel does not fragment it.
            let size = (JUMBO - 28).to_string();
            let argv = ["ping", "-A", "-q", "-c", "5", "-w", "30", "-s", &size, &ip];
            let ran = self.expect("jumbo", guest.run(&argv, LIMIT));
            assert_eq!(ran.code, Some(0), "{ran:?}");
            let target: Target = format!("tcp:{ip}:{STREAM_PORT}").parse().unwrap();
            let sent = traffic::stream(guest, &target, 65_536, bytes, LIMIT);
            assert_eq!(self.expect("TCP", sent).total_bytes, bytes);
            self.expect("half-close", traffic::half_close(guest, &target, 300_000));
        }
    }
}

#[test]
fn virtual_machines_on_two_hosts_talk_by_a_causeway_link() {
    let Some(mut pair) = Pair::joined_by("causeway") else { return };
    pair.daemons.iter().for_each(|daemon| await_state(daemon, "link", "up"));
    pair.talk(32 << 20);
    for daemon in &pair.daemons {
        // The cables' MTU, or the length after the IPv6 overhead.
        let found = |mtu: u64| (1480..=1500).contains(&mtu);
        wait(
            || show(daemon, "link")["path_mtu"].as_u64().is_some_and(found),
            || format!("{:#}", show(daemon, "link")),
        );
    }
    // The cable flaps, and the guests' connection survives.
    pair.flap_under_a_stream(256 << 20);
    // A host's daemon is killed and replaced, without an effect on the guests.
    pair.daemons[0].replace().unwrap();
    pair.daemons.iter().for_each(|daemon| await_state(daemon, "link", "up"));
    pair.talk(1 << 20);
}

#[test]
fn virtual_machines_on_two_hosts_talk_by_a_vnet_link() {
    let Some(pair) = Pair::joined_by("vnet") else { return };
    pair.talk(8 << 20);
    // The same guests over a link of another kind, replaced while they run.
    for host in [0, 1] {
        let add = pair.test_hosts.link_add(host, "plain", "causeway-plain", 0);
        let add: Vec<&str> = add.iter().map(String::as_str).collect();
        pair.daemons[host].cli(&["link", "del", "link"]).unwrap();
        pair.daemons[host].cli(&add).unwrap();
    }
    pair.daemons.iter().for_each(|daemon| await_state(daemon, "plain", "up"));
    for (from, to) in [(0, 1), (1, 0)] {
        let ping = traffic::ping(&pair.guests[from], &pair.members[to].ip(), 20).unwrap();
        assert!(ping.received > 0, "{ping:?}\n{}", pair.daemons[from].log());
    }
}
