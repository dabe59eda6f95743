//! causewayd is killed with SIGKILL and replaced while guests with RDMA adapters run: QEMU notices
//! nothing, the stock driver recovers by itself, and RDMA works again without a reboot.

use causeway_vm::daemon::{Adapter, Setup};
use causeway_vm::rdma::{self, Exchange, Listener, RdmaGuest, Suite};
use causeway_vm::{Daemon, Result};
use std::time::{Duration, Instant};

/// Time limit of a program under emulation.
const LIMIT: Duration = Duration::from_secs(40);
/// TCP port of rdma-core's programs.
const PORT: Listener = Listener::Tcp(18515);

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
    let suite = Suite::Trixie;
    if let Err(why) = rdma::fetch(suite) {
        assert!(std::env::var_os("CI").is_none(), "{why}");
        eprintln!("skipped: {why}");
        return;
    }
    let adapter =
        |number: u8| Adapter { name: format!("hca{number}"), group: "blue".into(), number };
    let setup = Setup { adapters: vec![adapter(1), adapter(2)], ..Setup::default() };
    let mut daemon = Daemon::with(setup).unwrap();
    let machine = rdma::machine(suite).unwrap();
    let start = |number: u8| {
        let socket = daemon.adapter_socket(&format!("hca{number}"));
        RdmaGuest::start(&machine, &format!("rdma{number}"), &socket, number).unwrap()
    };
    let mut guests = [start(1), start(2)];
    for guest in &mut guests {
        guest.await_ready().unwrap_or_else(|e| panic!("{e}\n--- causewayd ---\n{}", daemon.log()));
    }
    pingpong(&guests).unwrap();

    daemon.kill();
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
