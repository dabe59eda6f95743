//! Two guests with host channel adapters in a group: the stock `mlx5` driver and unmodified RDMA
//! programs exchange data.
//!
//! `CAUSEWAY_RDMA_SOCKETS=A,B` runs the same programs against another server, which listens on the
//! vfio-user sockets A and B. `CAUSEWAY_RDMA_SUITE` selects the guests' suite, and
//! `CAUSEWAY_RDMA_STEPS=A,B` the steps with A or B in their names. `CAUSEWAY_RDMA_COMMANDS=1` prints
//! the commands that the drivers sent.

use causeway_guest_tool::limits::STREAM_PORT;
use causeway_vm::daemon::{Adapter, Setup};
use causeway_vm::rdma::{self, Exchange, Listener, RdmaGuest, Suite};
use causeway_vm::{Daemon, Error, Machine, Result, traffic};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time limit of a program under emulation; no program takes a tenth of it.
const LIMIT: Duration = Duration::from_secs(40);
/// TCP port of rdma-core's and perftest's programs.
const PORT: Listener = Listener::Tcp(18515);
const DEVICE: &str = "mlx5_0";
/// Bytes of a stream.
const STREAM_BYTES: u64 = 4 << 20;
/// Size of the disk.
const DISK_BYTES: u32 = 4 << 20;

/// The guests, and the daemon unless another server is tested. Guests drop first.
struct Pair {
    guests: [RdmaGuest; 2],
    daemon: Option<Daemon>,
}

impl Pair {
    /// Boots two guests; `None`, with a message, where their parts cannot be fetched outside CI.
    fn boot() -> Option<Self> {
        if let Err(why) = rdma::fetch(suite()) {
            assert!(std::env::var_os("CI").is_none(), "{why}");
            eprintln!("skipped: {why}");
            return None;
        }
        let machine = rdma::machine(suite()).unwrap();
        let (daemon, sockets) = match std::env::var("CAUSEWAY_RDMA_SOCKETS") {
            Ok(paths) => (None, paths.split(',').map(PathBuf::from).collect()),
            Err(_) => {
                let daemon = start_daemon();
                let sockets = ["hca1", "hca2"].map(|name| daemon.adapter_socket(name));
                (Some(daemon), Vec::from(sockets))
            }
        };
        let start = Instant::now();
        let guests = boot(&machine, &sockets).unwrap_or_else(|e| panic!("{e}{}", log(&daemon)));
        println!("two guests with an active port after {:.1} s", start.elapsed().as_secs_f32());
        Some(Self { guests, daemon })
    }
}

fn prints_commands() -> bool {
    std::env::var_os("CAUSEWAY_RDMA_COMMANDS").is_some()
}

fn suite() -> Suite {
    match std::env::var("CAUSEWAY_RDMA_SUITE").as_deref() {
        Err(_) | Ok("trixie") => Suite::Trixie,
        Ok("bookworm") => Suite::Bookworm,
        Ok("backports") => Suite::Backports,
        Ok(other) => panic!("CAUSEWAY_RDMA_SUITE={other} is no suite"),
    }
}

fn start_daemon() -> Daemon {
    let adapter =
        |number: u8| Adapter { name: format!("hca{number}"), group: "blue".into(), number };
    let adapters = vec![adapter(1), adapter(2)];
    let log = prints_commands().then(|| "debug".into());
    Daemon::with(Setup { adapters, log, ..Setup::default() }).unwrap()
}

fn boot(machine: &Machine, sockets: &[PathBuf]) -> Result<[RdmaGuest; 2]> {
    let [first, second] = sockets else { panic!("expected two sockets: {sockets:?}") };
    let mut guests = [
        RdmaGuest::start(machine, "rdma1", first, 1)?,
        RdmaGuest::start(machine, "rdma2", second, 2)?,
    ];
    for guest in &mut guests {
        guest.await_ready()?;
    }
    Ok(guests)
}

/// Returns the daemon's log, for errors.
fn log(daemon: &Option<Daemon>) -> String {
    daemon.as_ref().map_or_else(String::new, |d| format!("\n--- causewayd ---\n{}", d.log()))
}

/// Runs steps and collects failures: the list of the failed programs locates a fault.
struct Steps {
    pair: Pair,
    failed: Vec<String>,
}

impl Steps {
    fn step(&mut self, name: &str, act: impl FnOnce(&mut Pair) -> Result<()>) {
        let wanted = std::env::var("CAUSEWAY_RDMA_STEPS").unwrap_or_default();
        if !wanted.split(',').any(|part| name.contains(part)) {
            return;
        }
        let start = Instant::now();
        let result = act(&mut self.pair);
        let verdict = if result.is_ok() { "passed" } else { "FAILED" };
        println!("{verdict} {:5.1} s  {name}", start.elapsed().as_secs_f32());
        if let Err(why) = result {
            println!("{why}");
            self.failed.push(name.into());
        }
    }

    /// Runs a program of rdma-core or perftest as server and, with the address of the server added, as
    /// client. The server of `ibv_…_pingpong -c` reports changed content in its output.
    fn program(&mut self, command: &str, options: &str) {
        self.step(&format!("{command} {options}"), |pair| {
            let [at, from] = &pair.guests;
            let (index, ip) = (at.gid_index(), at.ip());
            let gid = if command.starts_with("ibv_") { "-g" } else { "-x" };
            let mut server = vec![command, "-d", DEVICE, gid, &index];
            server.extend(options.split_whitespace());
            let mut client = server.clone();
            client.push(&ip);
            let exchange =
                Exchange { server: &server, client: &client, listener: PORT, limit: LIMIT };
            let (served, _) = exchange.run(at, from)?;
            match served.contains("invalid data") {
                true => Err(Error::Traffic { what: format!("content changed: {served}") }),
                false => Ok(()),
            }
        });
    }

    /// Runs a server and its client, which meet by the connection manager. `SERVER` in a command
    /// stands for the address of the server.
    fn managed(&mut self, server: &str, client: &str) {
        self.step(client, |pair| {
            let [at, from] = &pair.guests;
            let ip = at.ip();
            let (server, client) = (words(server, &ip), words(client, &ip));
            let exchange = Exchange {
                server: &server,
                client: &client,
                listener: Listener::ConnectionManager,
                limit: LIMIT,
            };
            exchange.run(at, from).map(|_| ())
        });
    }
}

/// Splits a command line and inserts the address of the server.
fn words<'a>(line: &'a str, server: &'a str) -> Vec<&'a str> {
    line.split_whitespace().map(|word| if word == "SERVER" { server } else { word }).collect()
}

#[test]
fn rdma_programs_of_two_stock_guests_exchange_data() {
    let Some(pair) = Pair::boot() else { return };
    let mut steps = Steps { pair, failed: Vec::new() };
    steps.step("ibv_devinfo", |pair| {
        for guest in &pair.guests {
            let info = guest.run(&["ibv_devinfo", "-d", DEVICE], LIMIT)?;
            for want in ["PORT_ACTIVE", "link_layer:\t\tEthernet", "hca_id:\tmlx5_0"] {
                assert!(info.contains(want), "{want} not in {info}");
            }
        }
        Ok(())
    });
    steps.step("ibv_devinfo -v", |pair| {
        let info = pair.guests[0].run(&["ibv_devinfo", "-v", "-d", DEVICE], LIMIT)?;
        let info = info.split_whitespace().collect::<Vec<_>>().join(" ");
        let multicast = ["max_mcast_grp: 64", "max_mcast_qp_attach: 16"];
        for want in multicast.iter().chain(&["max_mw: 0", " XRC "]) {
            assert!(info.contains(want), "{want} not in {info}");
        }
        assert!(!info.contains("MEM_WINDOW"), "{info}");
        Ok(())
    });
    steps.step("ping", |pair| {
        let [a, b] = &pair.guests;
        a.run(&["ping", "-c", "3", "-i", "0.2", "-w", "10", "-s", "1400", &b.ip()], LIMIT)?;
        b.run(&["ping", "-c", "3", "-i", "0.2", "-w", "10", &a.ip()], LIMIT).map(|_| ())
    });
    steps.managed("rping -s -a SERVER -C 5 -S 4096 -V", "rping -c -a SERVER -C 5 -S 4096 -V");
    steps.managed("ucmatose -C 5", "ucmatose -C 5 -s SERVER");
    steps.managed("udaddy -C 5", "udaddy -C 5 -s SERVER");
    steps.managed("ib_write_bw -R -n 20 -F", "ib_write_bw -R -n 20 -F SERVER");
    steps.program("ibv_rc_pingpong", "-n 100 -s 65536 -c");
    steps.program("ibv_rc_pingpong", "-n 100 -e -c");
    steps.program("ibv_uc_pingpong", "-n 50 -c");
    steps.program("ibv_ud_pingpong", "-n 50 -s 1000 -c");
    steps.program("ibv_srq_pingpong", "-n 50 -q 4 -c");
    steps.program("ibv_xsrq_pingpong", "-n 50 -s 4096");
    steps.program("ibv_xsrq_pingpong", "-n 50 -e");
    steps.program("ib_send_bw", "-c XRC -n 50 -s 4096 -F");
    steps.program("ib_write_bw", "-c XRC -n 20 -s 65536 -F");
    steps.program("ib_atomic_lat", "-c XRC -n 30 -F");
    steps.program("ib_write_lat", "-n 50 -s 64 -F");
    steps.program("ib_send_lat", "-n 30 -s 64 -e -F");
    steps.program("ib_send_lat", "-n 30 -s 64 -c UD -F");
    steps.program("ib_send_bw", "-n 50 -s 4096 -F");
    steps.program("ib_send_bw", "-n 20 -s 1024 -r 64 --use-srq -F");
    steps.program("ib_read_bw", "-n 20 -s 65536 -F");
    steps.program("ib_write_bw", "-n 20 -s 65536 -b -F");
    steps.program("ib_atomic_lat", "-n 30 -F");
    steps.step("TCP", tcp);
    // Debian's cloud kernel 7.3 has no module of SMC.
    if suite() != Suite::Backports {
        steps.step("SMC-R", smc);
    }
    steps.step("NVMe over RDMA", nvme);
    steps.step("NVMe disconnect", nvme_disconnect);
    steps.step("driver rebind", |pair| pair.guests[1].rebind());
    steps.program("ibv_rc_pingpong", "-n 20 -e -c");
    steps.step("kernel messages", |pair| pair.guests.iter().try_for_each(RdmaGuest::check_kernel));
    let Steps { pair: Pair { guests, daemon }, failed } = steps;
    drop(guests);
    if prints_commands() {
        std::thread::sleep(Duration::from_secs(3));
        let log = log(&daemon);
        let lines = log.lines().filter(|line| line.contains("opcodes="));
        lines.for_each(|line| println!("{line}"));
    }
    assert!(failed.is_empty(), "failed: {}{}", failed.join(", "), log(&daemon));
}

/// Streams in both directions over the Ethernet interface, with its segmentation offload.
fn tcp(pair: &mut Pair) -> Result<()> {
    let [at, from] = &pair.guests;
    for (at, from) in [(at, from), (from, at)] {
        let target = format!("tcp:{}:{STREAM_PORT}", at.ip()).parse().unwrap();
        traffic::ping_pong(from.guest(), &target, 4096, 20, LIMIT)?;
        traffic::stream(from.guest(), &target, 65_536, STREAM_BYTES, LIMIT)?;
        traffic::half_close(from.guest(), &target, 200_000)?;
    }
    Ok(())
}

/// Streams over sockets that the kernels carry over RDMA, and checks that the Ethernet interface did
/// not carry the content: SMC falls back to TCP where RDMA fails.
fn smc(pair: &mut Pair) -> Result<()> {
    let [at, from] = &pair.guests;
    for guest in &pair.guests {
        guest.load("smc")?;
    }
    let address = format!("smc:{}:7003", at.ip());
    let serve = format!("causeway-guest serve {address} >/tmp/smc.log 2>&1 & sleep 1");
    at.run(&["sh", "-c", &serve], LIMIT)?;
    let received = |guest: &RdmaGuest| -> Result<u64> {
        let count = guest.run(&["cat", "/sys/class/net/eth0/statistics/rx_bytes"], LIMIT)?;
        Ok(count.trim().parse().unwrap_or(u64::MAX))
    };
    let before = received(at)?;
    let target = address.parse().unwrap();
    traffic::ping_pong(from.guest(), &target, 4096, 20, LIMIT)?;
    let streamed = traffic::stream(from.guest(), &target, 65_536, STREAM_BYTES, LIMIT)?;
    let by_tcp = received(at)?.saturating_sub(before);
    match by_tcp < streamed.total_bytes / 16 {
        true => Ok(()),
        false => Err(Error::Traffic { what: format!("the interface received {by_tcp} bytes") }),
    }
}

/// Writes random content to a disk of the first guest from the second, and reads it back, by the
/// kernels' NVMe drivers: fast registration, invalidation, and many requests in flight.
fn nvme(pair: &mut Pair) -> Result<()> {
    let [at, from] = &pair.guests;
    at.load("nvme-target")?;
    from.load("nvme-host")?;
    let target = format!(
        "set -e; mount -t configfs none /sys/kernel/config; cd /sys/kernel/config/nvmet\n\
         mkdir subsystems/t; echo 1 >subsystems/t/attr_allow_any_host\n\
         mkdir subsystems/t/namespaces/1; truncate -s {DISK_BYTES} /tmp/disk\n\
         printf /tmp/disk >subsystems/t/namespaces/1/device_path\n\
         echo 1 >subsystems/t/namespaces/1/buffered_io\n\
         echo 1 >subsystems/t/namespaces/1/enable\n\
         mkdir ports/1; cd ports/1; echo rdma >addr_trtype; echo ipv4 >addr_adrfam\n\
         echo {ip} >addr_traddr; echo 4420 >addr_trsvcid\n\
         ln -s ../../subsystems/t subsystems/t",
        ip = at.ip(),
    );
    at.run(&["sh", "-c", &target], LIMIT)?;
    let uuid = "1b4e28ba-2fa1-11d2-883f-0016d3cca427";
    let host = format!(
        "set -e; echo transport=rdma,traddr={ip},trsvcid=4420,nqn=t,nr_io_queues=1,\
         hostnqn=nqn.2014-08.org.nvmexpress:uuid:{uuid},hostid={uuid} >/dev/nvme-fabrics\n\
         t=0; until [ -b /dev/nvme0n1 ]; do t=$((t+1)); [ $t -lt 100 ]; sleep 0.1; done\n\
         head -c {DISK_BYTES} /dev/urandom >/tmp/written\n\
         dd if=/tmp/written of=/dev/nvme0n1 bs=64k conv=fsync\n\
         echo 3 >/proc/sys/vm/drop_caches; cmp /tmp/written /dev/nvme0n1",
        ip = at.ip(),
    );
    from.run(&["sh", "-c", &host], LIMIT)?;
    let disk = at.run(&["sha256sum", "/tmp/disk"], LIMIT)?;
    let written = from.run(&["sha256sum", "/tmp/written"], LIMIT)?;
    match disk.split(' ').next() == written.split(' ').next() {
        true => Ok(()),
        false => Err(Error::Traffic { what: format!("written {written}, on the disk {disk}") }),
    }
}

/// Disconnects the disk: the driver posts to a queue pair in the error state and waits for the flushed
/// completion.
fn nvme_disconnect(pair: &mut Pair) -> Result<()> {
    let from = &pair.guests[1];
    let script = "echo 1 >/sys/class/nvme/nvme0/delete_controller && [ ! -e /dev/nvme0n1 ]";
    from.run(&["sh", "-c", script], LIMIT).map(|_| ())
}
