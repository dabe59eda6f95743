//! causewayd is killed with SIGKILL and replaced while guests with RDMA adapters run: QEMU notices
//! nothing, the stock driver recovers by itself, and RDMA works again without a reboot.

mod common;

use causeway_vm::daemon::Setup;
use causeway_vm::rdma::{
    Exchange, Listener, Load, Pair, Programs, RdmaGuest, Suite, kill_under_load,
};
use causeway_vm::{Daemon, Result};
use common::has_rdma_parts;
use std::time::{Duration, Instant};

/// Time limit of a program under emulation.
const LIMIT: Duration = Duration::from_secs(40);
/// TCP port of rdma-core's programs.
const PORT: Listener = Listener::Tcp(18515);
/// Messages of the exchange during which causewayd is killed, in each direction.
const MESSAGES: u32 = 15_000;
/// Time of traffic between two kills.
const PAUSE: Duration = Duration::from_millis(300);
/// Kills during the exchange.
const KILLS: u32 = 20;

/// Boots two guests on a daemon; `None` where their parts cannot be fetched outside CI. The guests
/// must drop first.
fn boot(setup: Setup) -> Option<(Daemon, [RdmaGuest; 2])> {
    let suite = Suite::Trixie;
    if !has_rdma_parts(suite, Programs::Verbs) {
        return None;
    }
    let daemon = Daemon::with(setup).unwrap();
    let pair = Pair::on(daemon, suite, Programs::Verbs).unwrap_or_else(|e| panic!("{e}"));
    let Pair { daemon, guests, .. } = pair;
    daemon.zip(Some(guests))
}

/// Exchanges messages between queue pairs of two guests, with checked content.
fn pingpong([at, from]: &[RdmaGuest; 2]) -> Result<()> {
    let (index, ip) = (at.gid_index(), at.ip());
    let server = ["ibv_rc_pingpong", "-d", "mlx5_0", "-g", &index, "-n", "50", "-c"];
    let client = [&server[..], &[&ip]].concat();
    let exchange = Exchange { server: &server, client: &client, listener: PORT, limit: LIMIT };
    exchange.run(at, from).map(|_| ())
}

#[test]
fn rdma_guests_recover_after_a_restart_of_causewayd() {
    let Some((mut daemon, mut guests)) = boot(Pair::setup()) else { return };
    pingpong(&guests).unwrap();

    daemon.kill();
    daemon.remove_records();
    // Registers are read meanwhile: the driver polls its function every two seconds.
    std::thread::sleep(Duration::from_secs(3));
    daemon.resume().unwrap();
    let since = Instant::now();
    for guest in &mut guests {
        guest
            .await_recovery(1)
            .unwrap_or_else(|e| panic!("{e}\n--- causewayd ---\n{}", daemon.log()));
    }
    println!("both drivers recovered after {:.1} s", since.elapsed().as_secs_f32());
    pingpong(&guests).unwrap_or_else(|e| panic!("{e}\n--- causewayd ---\n{}", daemon.log()));
    let [a, b] = &guests;
    a.run(&["ping", "-c", "3", "-i", "0.2", "-w", "10", &b.ip()], LIMIT).unwrap();
    for guest in &guests {
        guest.check_kernel_alive().unwrap();
        if std::env::var_os("CAUSEWAY_RDMA_MESSAGES").is_some() {
            println!(
                "{}",
                guest.run(&["sh", "-c", "dmesg | grep mlx5 | tail -n 60"], LIMIT).unwrap()
            );
        }
    }
}

#[test]
fn rdma_queue_pairs_continue_after_a_kill_of_causewayd() {
    let setup = Setup { in_memory: true, ..Pair::setup() };
    let Some((mut daemon, guests)) = boot(setup) else { return };
    // The same queue pairs exchange messages with checked content before, during and after kills.
    let load = Load { messages: MESSAGES, events: false, kills: KILLS, pause: PAUSE };
    let (kills, result) = kill_under_load(&mut daemon, &guests, load).unwrap();
    result.unwrap_or_else(|e| panic!("{e}\n--- causewayd ---\n{}", daemon.log()));
    assert_eq!(kills, KILLS, "the exchange ended before the last kill");
    pingpong(&guests).unwrap();
    for guest in &guests {
        guest.check_kernel().unwrap();
    }
}
