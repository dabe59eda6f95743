//! A guest that moves: stopped on one host, started on another with its addresses.

use std::time::{Duration, Instant};

use causeway_attach::native::{
    ConnectionId, NetOptions, NetPort, SocketError, Sockets, VsockOptions, VsockPort,
};
use causeway_wire::vsock::Type;

use crate::hosts::{EtcdServer, Host, PATIENCE, cross, mac, udp_port, wait};

/// Address of the guest that moves.
const MOVER: [u8; 6] = [0x52, 0x54, 0, 0, 0xff, 1];
const MOVER_TEXT: &str = "52:54:00:00:ff:01";
/// CID of the guest that moves, and of the guest that stays.
const CIDS: [u32; 2] = [9, 3];
/// Port at which the guest that moves listens.
const NUMBER: u32 = 5000;

/// Adds the ports of the guest that moves.
fn add_ports(host: &Host) {
    let net = format!(r#"{{"name":"mover","group":"blue","kind":"net","mac":"{MOVER_TEXT}"}}"#);
    host.post("/v1/ports", &net);
    add_vsock(host, "mover-vsock", CIDS[0]);
}

fn add_vsock(host: &Host, name: &str, cid: u32) {
    let port = format!(r#"{{"name":"{name}","group":"blue","kind":"vsock","cid":{cid}}}"#);
    host.post("/v1/ports", &port);
}

/// Attaches the network device of the guest that moves.
fn attach_net(host: &Host) -> NetPort {
    let path = host.file("mover.sock");
    wait("the port accepts a frontend", || NetPort::attach(&path, NetOptions::default()).ok())
}

/// Attaches a socket device.
fn attach_vsock(host: &Host, name: &str) -> Sockets {
    let path = host.file(&format!("{name}.sock"));
    let attach = || VsockPort::attach(&path, VsockOptions::default()).ok();
    Sockets::new(wait("the port accepts a frontend", attach))
}

/// Waits until a host knows the guest that moves at another host.
fn await_place(host: &Host, at: &str) {
    host.await_view("/v1/cluster/addresses", |all| {
        let mut all = all.as_array().into_iter().flatten();
        all.any(|known| known["address"] == MOVER_TEXT && known["host"] == at)
    });
}

#[test]
fn cluster_follows_a_guest_that_moves_from_host_to_host() {
    let etcd = EtcdServer::start();
    etcd.verb(&["group", "add", "blue", "--vni", "7"]);
    let port = udp_port();
    let [stays, one, two] = [1, 2, 3].map(|number| Host::start(number, &etcd, port));
    let mut guest = stays.attach(0);
    for host in [&one, &two] {
        add_ports(host);
    }
    let (to, from) = ((mac(1, 0), MOVER), (MOVER, mac(1, 0)));
    let mut times = Vec::new();
    for (host, name) in [(&one, "h2"), (&two, "h3")].into_iter().cycle().take(8) {
        let mut mover = attach_net(host);
        let attached = Instant::now();
        await_place(&stays, name);
        times.push(attached.elapsed());
        // Frames reach the guest where it is now, in both directions.
        cross(&mut guest, to, &mut mover);
        cross(&mut mover, from, &mut guest);
    }
    times.sort_unstable();
    println!("the address was known elsewhere after {times:?}");
}

/// Connects the guest that stays to the one that moves.
fn connect(guest: &mut Sockets, mover: &mut Sockets) -> ConnectionId {
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| mover.accept(PATIENCE));
        // Until the CID is known at the new host, connects are refused.
        let opened = wait("the guest that moves is reached", || {
            guest.connect(Type::Stream, CIDS[0].into(), NUMBER, PATIENCE).ok()
        });
        accepted.join().unwrap().unwrap();
        opened
    })
}

#[test]
fn cluster_resets_connections_to_a_guest_that_moves_and_reaches_its_new_place() {
    let etcd = EtcdServer::start();
    etcd.verb(&["group", "add", "blue", "--vni", "7"]);
    let port = udp_port();
    let [stays, one, two] = [1, 2, 3].map(|number| Host::start(number, &etcd, port));
    add_vsock(&stays, "stays", CIDS[1]);
    let mut guest = attach_vsock(&stays, "stays");
    for host in [&one, &two] {
        add_ports(host);
        let mut mover = attach_vsock(host, "mover-vsock");
        mover.listen(Type::Stream, NUMBER);
        let open = connect(&mut guest, &mut mover);
        guest.send(open, b"before the move", PATIENCE).unwrap();
        // The guest stops. Its host resets the connection, and the reset crosses the link.
        drop(mover);
        let end = wait("the connection ends", || {
            let end = guest.try_receive(open, &mut [0; 64]).err();
            if end.is_none() {
                guest.wait(Duration::from_millis(10)).unwrap();
            }
            end
        });
        assert!(matches!(end, SocketError::Reset), "{end:?}");
        guest.close(open).unwrap();
    }
}
