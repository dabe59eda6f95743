//! Interfaces that are missing, vanish, go down, are renamed, or belong to others.

use std::process::Command;

use causeway_host::net::socket::PacketSocket;
use causeway_host::net::tap::{TapError, TapInterface, TapOptions};
use causeway_model::PortState;
use causeway_model::port::TapSpec;
use causeway_wire::virtio_net::Header;
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::rig::{Rig, host_receive, in_namespace, ip, mac, plain, send, tap};

/// Returns the number of an interface in the namespace of the test; /sys shows another.
fn index_of(name: &str) -> String {
    shown(name).split(':').next().unwrap().to_owned()
}

/// Returns whether an interface exists in the namespace of the test.
fn exists(name: &str) -> bool {
    let shown = Command::new("ip").args(["link", "show", name]).output().unwrap();
    shown.status.success()
}

fn shown(name: &str) -> String {
    let shown = Command::new("ip").args(["-d", "addr", "show", name]).output().unwrap();
    String::from_utf8_lossy(&shown.stdout).into_owned()
}

const OPTIONS: TapOptions =
    TapOptions { address: None, ip: None, mtu: 1500, offloads: true, persistent: false };

#[test]
fn tap_interface_that_is_down_drops_and_returns() {
    in_namespace("interfaces::tap_interface_that_is_down_drops_and_returns", || {
        let rig = Rig::new();
        rig.tap(tap("ct0", 1));
        let mut guest = rig.guest("vm", 2, 0);
        let (none, frame) = (Header::default(), plain(mac(2), mac(1), &[1; 60]));
        ip("link set ct0 down");
        send(&mut guest, &none, &frame);
        rig.wait_counter("ct0", "drop_receiver_down_total", 1);
        let view = rig.view("ct0");
        assert!(view.warnings[0].contains("`ip link set ct0 up`"), "{view:?}");
        ip("link set ct0 up");
        let host = PacketSocket::open("ct0").unwrap();
        send(&mut guest, &none, &frame);
        assert_eq!(host_receive(&host).1, frame);
        assert_eq!(rig.view("ct0").warnings, Vec::<String>::new());
        ip("link set ct0 address 52:54:00:00:00:07");
        let view = rig.view("ct0");
        assert!(view.warnings[0].contains("ct0 address 52:54:00:00:00:01`"), "{view:?}");
        ip("link set ct0 address 52:54:00:00:00:01");
        ip("link set ct0 down");
        ip("link set ct0 name other");
        ip("link set other up");
        let view = rig.view("ct0");
        assert!(view.warnings[0].contains("renamed to other"), "{view:?}");
        let host = PacketSocket::open("other").unwrap();
        send(&mut guest, &none, &frame);
        assert_eq!(host_receive(&host).1, frame, "frames go on");
    });
}

#[test]
fn tap_interface_that_vanishes_is_opened_again() {
    in_namespace("interfaces::tap_interface_that_vanishes_is_opened_again", || {
        let rig = Rig::new();
        rig.tap(tap("ct0", 1));
        rig.tap(tap("ct1", 3));
        let mut guest = rig.guest("vm", 2, 0);
        let before = index_of("ct0");
        ip("link del ct0");
        rig.wait_state("ct0", PortState::Connecting);
        let view = rig.view("ct0");
        assert_eq!(view.connect_error.as_deref(), Some("interface ct0 was deleted"), "{view:?}");
        // Other ports go on meanwhile.
        let host = PacketSocket::open("ct1").unwrap();
        let frame = plain(mac(2), mac(3), &[1; 60]);
        send(&mut guest, &Header::default(), &frame);
        assert_eq!(host_receive(&host).1, frame);
        send(&mut guest, &Header::default(), &plain(mac(2), mac(1), &[1; 60]));
        rig.wait_state("ct0", PortState::Running);
        assert_ne!(index_of("ct0"), before);
        let host = PacketSocket::open("ct0").unwrap();
        let frame = plain(mac(2), mac(1), &[2; 60]);
        send(&mut guest, &Header::default(), &frame);
        assert_eq!(host_receive(&host).1, frame);
        assert_eq!(rig.view("ct0").connects_total, 2);
    });
}

#[test]
fn tap_interface_outlives_the_daemon_only_if_it_is_persistent() {
    in_namespace("interfaces::tap_interface_outlives_the_daemon_only_if_it_is_persistent", || {
        let rig = Rig::new();
        rig.tap(TapSpec { mtu: 1400, ..tap("ct0", 1) });
        rig.tap(TapSpec { persistent: false, ..tap("ct1", 2) });
        let text = shown("ct0");
        assert!(text.contains("52:54:00:00:00:01") && text.contains("mtu 1400"), "{text}");
        assert!(text.contains("UP") && text.contains("vnet_hdr on"), "{text}");
        ip("addr add 10.9.0.1/24 dev ct0");
        let before = index_of("ct0");
        drop(rig);
        assert!(exists("ct0") && !exists("ct1"));
        let rig = Rig::new();
        rig.tap(TapSpec { mtu: 1400, ..tap("ct0", 1) });
        assert_eq!(index_of("ct0"), before);
        assert!(shown("ct0").contains("10.9.0.1"));
        rig.delete("ct0");
        assert!(exists("ct0"));
    });
}

#[test]
fn tap_interface_gets_its_ip_address_whenever_it_is_created() {
    in_namespace("interfaces::tap_interface_gets_its_ip_address_whenever_it_is_created", || {
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "0").unwrap();
        let rig = Rig::new();
        let with =
            |name, n, address: &str| TapSpec { address: Some(address.into()), ..tap(name, n) };
        rig.tap(with("ct0", 1, "10.9.0.1/22"));
        rig.tap(with("ct1", 2, "fd00:9::1/64"));
        let has_both =
            || shown("ct0").contains("10.9.0.1/22") && shown("ct1").contains("fd00:9::1/64");
        assert!(has_both(), "{} {}", shown("ct0"), shown("ct1"));
        for name in ["ct0", "ct1"] {
            ip(&format!("link del {name}"));
            rig.wait_state(name, PortState::Connecting);
            rig.wait_state(name, PortState::Running);
        }
        assert!(has_both(), "{} {}", shown("ct0"), shown("ct1"));
        // A restart finds the address, and further addresses of the operator.
        ip("addr add 10.8.0.1/24 dev ct0");
        drop(rig);
        let rig = Rig::new();
        rig.tap(with("ct0", 1, "10.9.0.1/22"));
        rig.tap(with("ct1", 2, "fd00:9::1/64"));
        assert!(has_both() && shown("ct0").contains("10.8.0.1/24"), "{}", shown("ct0"));
    });
}

#[test]
fn tap_interfaces_of_others_are_refused_with_a_remedy() {
    in_namespace("interfaces::tap_interfaces_of_others_are_refused_with_a_remedy", || {
        let rig = Rig::new();
        ip("link add dummy0 type veth peer name dummy1");
        rig.try_tap(tap("dummy0", 1)).unwrap();
        let view = rig.view("dummy0");
        assert_eq!(view.state, PortState::Connecting);
        assert!(view.connect_error.unwrap().contains("is no TAP interface"));
        rig.delete("dummy0");
        // An interface with several queues, made by an operator.
        ip("tuntap add mq0 mode tap multi_queue");
        ip("link set mq0 up");
        rig.tap(tap("mq0", 1));
        ip("tuntap add ct0 mode tap");
        let first = TapInterface::open("ct0", &OPTIONS).unwrap();
        assert!(!first.is_created);
        rig.try_tap(tap("ct0", 2)).unwrap();
        assert!(rig.view("ct0").connect_error.unwrap().contains("in use by another program"));
        drop(first);
        rig.wait_state("ct0", PortState::Running);
        // Two ports with one address.
        let refused = rig.try_tap(tap("ct1", 2)).unwrap_err().to_string();
        assert!(refused.contains("is that of port ct0"), "{refused}");
    });
}

#[test]
fn tap_interface_without_a_capability_must_exist() {
    in_namespace("interfaces::tap_interface_without_a_capability_must_exist", || {
        ip("tuntap add ours mode tap");
        ip("tuntap add theirs mode tap user 4242");
        ip("link set ours up");
        ip("address add 10.9.0.1/24 dev ours");
        // Capabilities belong to a thread.
        let opened = std::thread::spawn(|| {
            let none = CapabilitySet::empty();
            let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
            rustix::thread::set_capabilities(None, sets).unwrap();
            let ip = |last| Some((std::net::IpAddr::from([10, 9, 0, last]), 24));
            let addressed = [1, 2].map(|n| {
                TapInterface::open("ours", &TapOptions { ip: ip(n), ..OPTIONS }).map(drop)
            });
            (
                ["ours", "theirs", "missing"].map(|name| TapInterface::open(name, &OPTIONS)),
                addressed,
            )
        });
        let ([ours, theirs, missing], [has, lacks]) = opened.join().unwrap();
        // The interface has the first address, and needs a capability for the second.
        assert!(has.is_ok(), "{has:?}");
        let text = lacks.unwrap_err().to_string();
        assert!(text.contains("run `ip address add 10.9.0.2/24 dev ours`"), "{text}");
        assert!(!ours.unwrap().is_created);
        assert!(matches!(theirs, Err(TapError::Denied(..))), "{theirs:?}");
        let text = missing.unwrap_err().to_string();
        assert!(text.contains("CAP_NET_ADMIN") && text.contains("ip tuntap add missing"), "{text}");
    });
}
