//! Programs in more than two guests of a group.
//!
//! The matrix and a test call [`all`] with four guests. Exchanges of several pairs run at once,
//! each in threads of the harness; a step fails if any of its exchanges does, with the reasons of
//! those of the round. An exchange has a time limit of 40 s. The pingpong programs and `rping`
//! compare content; programs of perftest and `ping` count messages only.

use crate::error::Result;
use crate::rdma::steps::{LIMIT, PORT, Steps, program};
use crate::rdma::{Exchange, Group, Listener, RdmaGuest};

/// Runs programs between all pairs of guests, and three clients of a server at once.
pub fn all(steps: &mut Steps<Group>) {
    for (command, options) in [
        ("ibv_rc_pingpong", "-n 50 -s 16384 -c"),
        ("ibv_ud_pingpong", "-n 30 -s 1000 -c"),
        ("ib_write_bw", "-n 20 -s 65536 -b -F"),
        ("ib_atomic_lat", "-n 20 -F"),
    ] {
        steps.step(&format!("{command} {options}: all to all"), |group| {
            group.each_pair(|at, from| program(at, from, command, options))
        });
    }
    steps.step("rping: all to all", |group| group.each_pair(rping));
    steps.step("ping: all to all", |group| {
        group.each_pair(|at, from| {
            from.run(&["ping", "-c", "3", "-i", "0.2", "-w", "10", &at.ip()], LIMIT).map(|_| ())
        })
    });
    steps.step("ib_write_bw: three clients of a guest at once", |group| {
        group.all_with_first(writes_on_own_port)
    });
    steps.kernel_messages();
}

/// Exchanges messages, and both sides compare their content.
fn rping(at: &RdmaGuest, from: &RdmaGuest) -> Result<()> {
    let ip = at.ip();
    let exchange = Exchange {
        server: &["rping", "-s", "-a", &ip, "-C", "5", "-S", "4096", "-V"],
        client: &["rping", "-c", "-a", &ip, "-C", "5", "-S", "4096", "-V"],
        listener: Listener::ConnectionManager,
        limit: LIMIT,
    };
    exchange.run(at, from).map(|_| ())
}

/// Writes to the first guest by a TCP port of the client's own.
fn writes_on_own_port(at: &RdmaGuest, from: &RdmaGuest) -> Result<()> {
    let Listener::Tcp(base) = PORT else { return Ok(()) };
    let number = base.saturating_add(from.number().into());
    let (ip, index, port) = (at.ip(), at.gid_index(), number.to_string());
    let words = "ib_write_bw -d mlx5_0 -n 50 -s 65536 -F -p";
    let server = words.split(' ').chain([port.as_str(), "-x", &index]).collect::<Vec<_>>();
    let client = [&server[..], &[&ip]].concat();
    let listener = Listener::Tcp(number);
    Exchange { server: &server, client: &client, listener, limit: LIMIT }.run(at, from).map(|_| ())
}
