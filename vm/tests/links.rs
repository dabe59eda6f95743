//! Link failure and recovery under load: two hosts, native ports.

mod common;

use causeway_vm::Daemon;
use causeway_vm::daemon::Member;
use common::hosts::{TestHosts, address, address6, await_state, counter, show, wait};
use common::station::{Station, ip};
use std::time::{Duration, Instant};

/// MTU of the ports, and payload of the longest ping.
const JUMBO: u16 = 9000;
const LONGEST: usize = JUMBO as usize - 28;

/// Returns the two members of each host: 1 and 3 on the first, 2 and 4 on the second.
fn members(host: usize) -> [Member; 2] {
    let number = 1 + host as u8;
    [number, number + 2].map(|n| {
        let mut member = Member::new(&format!("guest{n}"), "blue", n);
        member.mtu = JUMBO;
        member
    })
}

fn daemons(test_hosts: &TestHosts, links: impl Fn(usize) -> String) -> [Daemon; 2] {
    [0, 1].map(|host| test_hosts.daemon(host, &members(host), &links(host)))
}

/// Attaches the first station of each host.
fn stations(daemons: &[Daemon; 2]) -> [Station; 2] {
    [0, 1].map(|host| Station::attach(&daemons[host], &members(host)[0]))
}

/// Pings in both directions.
fn both_ping(stations: &mut [Station; 2]) {
    for asker in [0, 1] {
        asks(stations, asker, 1000);
    }
}

fn asks(stations: &mut [Station; 2], asker: usize, bytes: usize) {
    let [one, two] = stations;
    let (asker, other) = if asker == 0 { (one, two) } else { (two, one) };
    ask(asker, other, bytes);
}

/// Pings `other` from `asker`.
fn ask(asker: &mut Station, other: &mut Station, bytes: usize) {
    let other_ip = other.ip();
    other.while_answering(|| asker.ping(other_ip, bytes));
}

/// Checks that links of these kinds carry frames, up to a ping of `longest` bytes.
fn carries(mtu: u16, address: fn(usize, usize) -> String, kinds: &[&str], longest: usize) {
    let Some(test_hosts) = TestHosts::new(&[mtu]) else { return };
    for kind in kinds {
        println!("{kind}");
        let daemons = daemons(&test_hosts, |host| {
            let ends = [address(host, 0), address(1 - host, 0)];
            let more = if *kind == "vxlan" { "vni = 42" } else { "" };
            test_hosts.link_between([host, 1 - host], "link", kind, ends, more)
        });
        let state = if matches!(*kind, "vnet" | "vxlan") { "open" } else { "up" };
        daemons.iter().for_each(|daemon| await_state(daemon, "link", state));
        let mut stations = stations(&daemons);
        for (asker, bytes) in [(0, 0), (1, 1100), (0, longest), (1, longest)] {
            asks(&mut stations, asker, bytes);
        }
    }
}

#[test]
fn every_kind_of_link_carries_long_frames_over_short_packets() {
    carries(1500, address, &["causeway", "causeway-plain", "vnet", "vxlan", "tcp"], LONGEST);
}

#[test]
fn every_kind_of_link_carries_frames_over_ipv6() {
    carries(1280, address6, &["causeway", "causeway-plain", "vnet", "vxlan", "tcp"], LONGEST);
}

#[test]
fn a_path_that_becomes_narrow_without_a_word_carries_on() {
    let Some(test_hosts) = TestHosts::new(&[1500]) else { return };
    let daemons = daemons(&test_hosts, |host| test_hosts.link(host, "link", "causeway", 0, ""));
    let mut stations = stations(&daemons);
    daemons.iter().for_each(|daemon| await_state(daemon, "link", "up"));
    let mtu = || show(&daemons[0], "link")["path_mtu"].as_u64().unwrap_or(0);
    let text = || format!("{:#}", show(&daemons[0], "link"));
    wait(|| mtu() > 1400, text);
    asks(&mut stations, 0, LONGEST);
    // The far end drops longer datagrams, and host 0 receives no error.
    test_hosts.nets[1].ip("link set cable0 mtu 1300").unwrap();
    wait(|| mtu() <= 1300, text);
    assert_eq!(show(&daemons[0], "link")["state"], "up");
    for asker in [0, 1] {
        asks(&mut stations, asker, LONGEST);
    }
}

#[test]
fn a_link_that_flaps_or_is_made_anew_carries_again() {
    let Some(test_hosts) = TestHosts::new(&[1500]) else { return };
    let daemons = daemons(&test_hosts, |host| test_hosts.link(host, "link", "causeway", 0, ""));
    let mut stations = stations(&daemons);
    let all = |state| daemons.iter().for_each(|daemon| await_state(daemon, "link", state));
    all("up");
    both_ping(&mut stations);
    for side in [0, 1] {
        test_hosts.nets[side].ip("link set cable0 down").unwrap();
        all("down");
        test_hosts.nets[side].ip("link set cable0 up").unwrap();
        all("up");
        both_ping(&mut stations);
    }
    // On one side only, and then on the other: the peers reconnect.
    for side in [0, 1] {
        daemons[side].cli(&["link", "del", "link"]).unwrap();
        let add = test_hosts.link_add(side, "link", "causeway", 0);
        daemons[side].cli(&add.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        all("up");
        both_ping(&mut stations);
    }
}

#[test]
fn traffic_takes_the_other_link_to_a_peer_and_returns() {
    let Some(test_hosts) = TestHosts::new(&[1500, 1500]) else { return };
    let daemons = daemons(&test_hosts, |host| {
        let one = test_hosts.link(host, "better", "causeway", 0, "peer = \"other\"\nmetric = 10");
        one + &test_hosts.link(host, "worse", "causeway", 1, "peer = \"other\"\nmetric = 20")
    });
    let mut stations = stations(&daemons);
    let all = |link, state| daemons.iter().for_each(|daemon| await_state(daemon, link, state));
    all("better", "up");
    all("worse", "up");
    let sent = |link| counter(&daemons[0], link, "transmit_packets_total");
    both_ping(&mut stations);
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        // Cut at the far end: the near end detects only the silence.
        let (before, cut) = (sent("worse"), Instant::now());
        test_hosts.nets[1].ip("link set cable0 down").unwrap();
        asks(&mut stations, 0, 100);
        fastest = fastest.min(cut.elapsed());
        assert!(sent("worse") > before, "{:#}", show(&daemons[0], "worse"));
        both_ping(&mut stations);
        all("better", "down");
        test_hosts.nets[1].ip("link set cable0 up").unwrap();
        all("better", "up");
        // Traffic returns to the better link, and the other carries nothing more.
        let before = sent("better");
        wait(
            || {
                let worse = sent("worse");
                both_ping(&mut stations);
                sent("worse") == worse
            },
            || format!("{:#}", show(&daemons[0], "worse")),
        );
        assert!(sent("better") > before, "{:#}", show(&daemons[0], "better"));
        if fastest < Duration::from_secs(3) {
            break;
        }
    }
    // Heartbeats detect the failure within 2 s; a busy machine has three attempts.
    assert!(fastest < Duration::from_secs(3), "the other link took over after {fastest:?}");
}

#[test]
fn a_host_that_is_killed_harms_nobody_and_is_found_again() {
    let Some(test_hosts) = TestHosts::new(&[1500]) else { return };
    let mut daemons = daemons(&test_hosts, |host| test_hosts.link(host, "link", "causeway", 0, ""));
    let [near, far] = &mut daemons;
    await_state(near, "link", "up");
    let mut one = Station::attach_for_long(near, &members(0)[0]);
    let [mut two, mut four] = members(1).map(|member| Station::attach(far, &member));
    let (two_ip, four_ip) = (two.ip(), four.ip());
    two.while_answering(|| one.ping(two_ip, 500));
    for _ in 0..2 {
        near.kill();
        await_state(far, "link", "down");
        four.while_answering(|| two.ping(four_ip, 1400));
        near.resume().unwrap();
        await_state(far, "link", "up");
        await_state(near, "link", "up");
        // Either end may start.
        two.while_answering(|| one.ping(two_ip, 1400));
        one.while_answering(|| two.ping(ip(1), 1400));
    }
    far.check().unwrap();
}

#[test]
fn link_port_that_moves_to_the_other_host_is_found_at_once() {
    let Some(test_hosts) = TestHosts::new(&[1500]) else { return };
    // The same port is configured on both hosts; its guest is attached on one host.
    let mover = Member::new("mover", "blue", 9);
    let daemons = [0, 1].map(|host| {
        let all = [&members(host)[..], std::slice::from_ref(&mover)].concat();
        test_hosts.daemon(host, &all, &test_hosts.link(host, "link", "causeway", 0, ""))
    });
    daemons.iter().for_each(|daemon| await_state(daemon, "link", "up"));
    let mut stations = stations(&daemons);
    for host in [0, 1, 0, 1] {
        // The guest sends nothing itself: its host announces it.
        let mut guest = Station::attach(&daemons[host], &mover);
        for station in &mut stations {
            guest.while_answering(|| station.ping_at(mover_mac(), ip(9), 1000));
        }
        let answered = stations[1 - host].ip();
        stations[1 - host].while_answering(|| guest.ping(answered, 1000));
    }
}

fn mover_mac() -> [u8; 6] {
    common::station::mac(9)
}

#[test]
fn link_path_shared_by_two_groups_keeps_them_separate() {
    let Some(test_hosts) = TestHosts::new(&[1500]) else { return };
    let red = |host: usize| Member::new("red", "red", 5 + host as u8);
    for (kind, more) in [("causeway", ["", ""]), ("vxlan", ["vni = 42", "vni = 43"])] {
        println!("{kind}");
        let daemons = [0, 1].map(|host| {
            let blue = test_hosts.link(host, "link", kind, 0, more[0]);
            let other = test_hosts.link(host, "red-link", kind, 0, more[1]);
            let other = other.replace("\"blue\"", "\"red\"");
            test_hosts.daemon(host, &[members(host)[0].clone(), red(host)], &(blue + &other))
        });
        let state = if kind == "vxlan" { "open" } else { "up" };
        for daemon in &daemons {
            ["link", "red-link"].iter().for_each(|link| await_state(daemon, link, state));
        }
        let mut blues = stations(&daemons);
        let mut reds = [0, 1].map(|host| Station::attach(&daemons[host], &red(host)));
        for _ in 0..2 {
            blues.iter_mut().chain(&mut reds).for_each(Station::broadcast);
            both_ping(&mut blues);
            both_ping(&mut reds);
        }
        for host in [0, 1] {
            assert!(blues[host].has_received(2 - host as u8), "host {host}");
            assert!(reds[host].has_received(6 - host as u8), "host {host}");
            assert!(!blues[host].has_received(6 - host as u8), "red came to blue on host {host}");
            assert!(!reds[host].has_received(2 - host as u8), "blue came to red on host {host}");
        }
    }
}

#[test]
fn what_is_for_all_of_three_hosts_comes_once_and_one_of_them_may_die() {
    let Some(test_hosts) = TestHosts::triangle() else { return };
    // The far end of each cable: host and cable index.
    let ways = [[(1, 0), (2, 2)], [(0, 0), (2, 1)], [(1, 1), (0, 2)]];
    let member = |host: usize| Member::new("guest", "blue", 1 + host as u8);
    let mut daemons = [0, 1, 2].map(|host| {
        let link = |(peer, cable)| {
            let ends = [address(host, cable), address(peer, cable)];
            test_hosts.link_between([host, peer], &format!("to{peer}"), "causeway", ends, "")
        };
        test_hosts.daemon(host, &[member(host)], &ways[host].map(link).concat())
    });
    let up = |daemon: &Daemon, peers: &[usize]| {
        peers.iter().for_each(|peer| await_state(daemon, &format!("to{peer}"), "up"));
    };
    (0..3).for_each(|host| up(&daemons[host], &ways[host].map(|(peer, _)| peer)));
    let [mut one, mut two, mut three] =
        [0, 1, 2].map(|host| Station::attach_for_long(&daemons[host], &member(host)));
    for _ in 0..2 {
        for station in [&mut one, &mut two, &mut three] {
            station.broadcast();
        }
        // Duplicates would arrive before these exchanges end.
        for _ in 0..3 {
            ask(&mut one, &mut two, 1000);
            ask(&mut two, &mut three, 1000);
            ask(&mut three, &mut one, 1000);
        }
    }
    for (station, own) in [(&one, 1), (&two, 2), (&three, 3)] {
        let received = [1, 2, 3].map(|n| station.broadcasts_from(n));
        assert_eq!(received, [1, 2, 3].map(|n| if n == own { 0 } else { 2 }), "guest {own}");
    }
    daemons[0].kill();
    ask(&mut two, &mut three, 1400);
    await_state(&daemons[1], "to0", "down");
    ask(&mut three, &mut two, 1400);
    daemons[0].resume().unwrap();
    up(&daemons[0], &[1, 2]);
    ask(&mut one, &mut three, 1400);
    ask(&mut two, &mut one, 1400);
}
