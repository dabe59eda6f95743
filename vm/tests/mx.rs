//! Messages in stock guests with a host channel adapter: a process reaches the daemon through its
//! adapter by libibverbs, with no driver and no module of its own. One boot of a Debian 13 and a
//! Debian 12 guest serves all checks. The NIC of the first guest has an interface to another host: a
//! network namespace with a daemon of its own, joined by a veth pair.

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use causeway_vm::daemon::{Adapter, MxNic, Setup};
use causeway_vm::limits::patient;
use causeway_vm::process::{self, Process};
use causeway_vm::rdma::{self, Programs, RdmaGuest, Suite};
use causeway_vm::{Daemon, Namespace, RunDir, build};
use common::{LIMIT, has_rdma_parts};

/// Path of a program in the guests.
const CHECK: &str = "/usr/bin/adapter-check";
/// The message tool in the guests; its library is beside it.
const TOOL: &str = "/usr/bin/causeway-mx";
/// The library in the guests.
const LIBRARY: &str = "/usr/bin/libmyriexpress.so";
/// The program of `mx/session.c` in the guests.
const SESSION: &str = "/usr/bin/mx-session";
/// Time limit of a measurement in an emulated guest.
const MEASURED: Duration = Duration::from_secs(240);
/// Time in which the end of processes must be seen.
const AT_ONCE: Duration = Duration::from_secs(5);
/// Lengths of messages: in the entry of a ring, in the data of a ring, and by regions in several pulls.
const SIZES: &str = "0,8,33,4K,32K,33K,1M";
/// A length of each path.
const FEW_SIZES: &str = "8,4K,64K";

/// A length of each path between hosts: SMALL and MEDIUM in one frame and in several, LARGE by pulls.
const SIZES_BETWEEN_HOSTS: &str = "8,100,4K,32K,64K,1M";
/// MTU of the veth pair: MXoE frames exceed the standard Ethernet MTU.
const MTU: u16 = 9000;
/// The interface of a NIC with a network.
const INTERFACE: &str = "eth0";
/// Number of the other host's NIC.
const OTHER: u8 = 9;

/// Another host on the network of the first guest's NIC.
struct OtherHost {
    daemon: Daemon,
    nic: MxNic,
}

impl OtherHost {
    fn new(space: &Namespace) -> Self {
        let nic = MxNic {
            name: format!("mx{OTHER}"),
            group: "blue".into(),
            number: OTHER,
            interface: Some(INTERFACE.into()),
            ..MxNic::default()
        };
        let namespace_of = Some(space.holder());
        let setup = Setup { nics: vec![nic.clone()], namespace_of, ..Setup::default() };
        Self { daemon: Daemon::with(setup).unwrap(), nic }
    }

    /// Returns a command of the tool for processes of that host.
    fn tool(&self) -> std::process::Command {
        let mut command = process::tied(build::message_tool().unwrap());
        command.env("CAUSEWAY_MX", self.daemon.nic_socket(&self.nic.name));
        command
    }
}

/// Returns two hosts that are joined by a cable; `None` where this process may not make them.
fn cabled_hosts() -> Option<[Namespace; 2]> {
    let made = || -> causeway_vm::Result<[Namespace; 2]> {
        let one = Namespace::new()?;
        let two = one.beside()?;
        one.cable(&two, INTERFACE, MTU)?;
        Ok([one, two])
    };
    let made = made();
    if let Err(why) = &made {
        assert!(std::env::var_os("CI").is_none(), "{why}");
        eprintln!("no other host: {why}");
    }
    made.ok()
}

/// A daemon with two guests of a group, and a NIC for the processes of each and for those of this
/// host. Guests drop first.
struct Messages {
    guests: Vec<RdmaGuest>,
    nics: Vec<MxNic>,
    daemon: Daemon,
    /// The other host, if this process may make one.
    other: Option<OtherHost>,
    _hosts: Option<[Namespace; 2]>,
}

impl Messages {
    fn boot(suites: [Suite; 2]) -> Self {
        let numbers = [1_u8, 2];
        let hosts = cabled_hosts();
        let adapter =
            |number| Adapter { name: format!("hca{number}"), group: "blue".into(), number };
        let nic = |number| MxNic {
            name: format!("mx{number}"),
            group: "blue".into(),
            number,
            adapter: (number < 3).then(|| format!("hca{number}")),
            interface: (number == 1 && hosts.is_some()).then(|| INTERFACE.into()),
            ..MxNic::default()
        };
        let nics: Vec<MxNic> = [1, 2, 3].into_iter().map(nic).collect();
        let adapters = numbers.into_iter().map(adapter).collect();
        let namespace_of = hosts.as_ref().map(|[own, _]| own.holder());
        let (nics_of_host, in_memory) = (nics.clone(), true);
        let setup =
            Setup { adapters, nics: nics_of_host, in_memory, namespace_of, ..Setup::default() };
        let daemon = Daemon::with(setup).unwrap();
        let other = hosts.as_ref().map(|[_, other]| OtherHost::new(other));
        let tool = build::message_tool().unwrap();
        let library = tool.with_file_name("libmyriexpress.so");
        let files = [
            (TOOL, build::stripped(&tool).unwrap()),
            (LIBRARY, build::stripped(&library).unwrap()),
            (CHECK, build::stripped(&build::adapter_check().unwrap()).unwrap()),
            (SESSION, compiled(&library)),
        ];
        // The image of a machine exists until the machine is dropped; QEMU reads it at its start.
        let machine =
            |suite| rdma::machine(suite, Programs::Verbs).unwrap().with_files(&files).unwrap();
        let machines = suites.map(machine);
        let start = |(machine, number)| {
            let socket = daemon.adapter_socket(&format!("hca{number}"));
            RdmaGuest::start(machine, &format!("mx{number}"), &socket, number).unwrap()
        };
        let mut guests: Vec<RdmaGuest> = machines.iter().zip(numbers).map(start).collect();
        for guest in &mut guests {
            guest
                .await_ready()
                .unwrap_or_else(|e| panic!("{e}\n--- causewayd ---\n{}", daemon.log()));
        }
        Self { guests, nics, daemon, other, _hosts: hosts }
    }

    /// Calls `act` for all guests at once.
    fn in_each(&self, act: impl Fn(usize, &RdmaGuest) + Sync) {
        std::thread::scope(|scope| {
            for (index, guest) in self.guests.iter().enumerate() {
                let act = &act;
                scope.spawn(move || act(index, guest));
            }
        });
    }

    /// Returns the state of the ports, for errors.
    fn ports(&self) -> String {
        let shown = |port: &&str| self.daemon.cli(&["port", "show", port]);
        let all = ["mx1", "mx2", "mx3"].iter().map(shown);
        let all: String = all.map(|shown| shown.unwrap_or_else(|e| e.to_string())).collect();
        format!("{all}\n--- causewayd ---\n{}", self.daemon.log())
    }

    /// Runs a script in a guest.
    fn run(&self, guest: usize, script: &str) -> String {
        let ran = self.guests[guest].run(&["sh", "-c", script], MEASURED);
        ran.unwrap_or_else(|e| panic!("{script}: {e}\n{}", self.ports()))
    }

    /// Starts a program in a guest, and waits until its endpoint is open.
    fn serve(&self, guest: usize, command: &str) {
        let script = format!(
            "rm -f /tmp/serve.log; {command} >/tmp/serve.log 2>&1 & for i in $(seq 150); do \
             grep -q 'is open' /tmp/serve.log && exit 0; sleep 0.2; done; cat /tmp/serve.log; exit 1"
        );
        self.run(guest, &script);
    }

    /// Returns a counter of a port.
    fn counter(&self, port: &str, counter: &str) -> u64 {
        let text = self.daemon.cli(&["-o", "json", "port", "show", port]).unwrap();
        let view: serde_json::Value = serde_json::from_str(&text).unwrap();
        view["counters"][counter].as_u64().unwrap_or_else(|| panic!("{counter}: {text}"))
    }

    /// Waits until a counter has a value.
    fn await_counter(&self, port: &str, counter: &str, value: u64) {
        let since = Instant::now();
        while self.counter(port, counter) != value {
            let now = self.counter(port, counter);
            assert!(since.elapsed() < patient(AT_ONCE), "{counter} {now}: {}", self.ports());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns a command of the tool for processes of this host.
    fn host_tool(&self) -> std::process::Command {
        let mut command = process::tied(build::message_tool().unwrap());
        command.env("CAUSEWAY_MX", self.daemon.nic_socket("mx3"));
        command
    }

    /// Restarts the daemon while messages pass between the guests: each completes or fails with an
    /// error, and both processes go on with the next daemon.
    fn cross_restart(&mut self, words: [&str; 2], end: fn(&mut Daemon)) {
        let nic = format!("0x{}", self.nics[0].mac().replace(':', ""));
        let [mode, count] = words;
        let command = format!("{SESSION} {mode} {nic} /tmp/restarted {count}");
        self.run(1, &format!("rm -f /tmp/restarted; {command} >/tmp/cross.log 2>&1 &"));
        let since = Instant::now();
        while self.counter("mx2", "guest_sessions") == 0 {
            assert!(since.elapsed() < patient(LIMIT), "no session: {}", self.ports());
            std::thread::sleep(Duration::from_millis(50));
        }
        // Some messages, in both directions.
        std::thread::sleep(patient(Duration::from_secs(1)));
        end(&mut self.daemon);
        self.daemon.resume().unwrap();
        let script = "touch /tmp/restarted; for i in $(seq 450); do \
                      grep -qE 'passed|session.c:' /tmp/cross.log && break; sleep 0.2; done; \
                      cat /tmp/cross.log";
        let printed = self.run(1, script);
        println!("{printed}");
        assert!(printed.contains("passed"), "{printed}\n{}", self.ports());
    }
}

/// Compiles `mx/session.c` with the library.
fn compiled(library: &Path) -> Vec<u8> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let of_library = own.join("../clients/myriexpress");
    let dir = RunDir::new().unwrap();
    let program = dir.join("session");
    let mut compiler = process::tied("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-o"]);
    compiler.arg(&program).arg(own.join("tests/mx/session.c"));
    compiler.arg("-I").arg(of_library.join("include")).arg("-I").arg(of_library.join("tests/c"));
    compiler.arg(library).arg("-Wl,-rpath,/usr/bin");
    process::output(&mut compiler).unwrap();
    std::fs::read(program).unwrap()
}

#[test]
fn mx_messages_pass_within_and_between_stock_guests_and_outlive_daemons() {
    let suites = [Suite::Trixie, Suite::Bookworm];
    if !suites.into_iter().all(|suite| has_rdma_parts(suite, Programs::Verbs)) {
        return;
    }
    let mut messages = Messages::boot(suites);
    messages.in_each(|_, guest| {
        let printed = guest.run(&[CHECK], LIMIT).unwrap_or_else(|e| panic!("{e}"));
        println!("{printed}");
        assert!(printed.contains("passed"), "{printed}");
    });
    // The adapter is found without the variable, and by its name.
    messages.in_each(|index, _| {
        for variable in ["", "CAUSEWAY_MX=adapter:mlx5_0:1"] {
            let info = messages.run(index, &format!("{variable} {TOOL} info --json"));
            assert!(info.contains(&messages.nics[index].mac()), "{variable}: {info}");
        }
    });
    pass_messages(&messages);
    pass_between_host_and_guests(&messages);
    if let Some(other) = &messages.other {
        pass_to_another_host(&messages, other);
    }
    // A child has none of the endpoints of its parent, which goes on.
    messages.in_each(|index, _| {
        let nic = format!("0x{}", messages.nics[index].mac().replace(':', ""));
        let printed = messages.run(index, &format!("{SESSION} fork {nic}"));
        assert!(printed.contains("passed"), "{printed}");
    });
    for guest in &messages.guests {
        guest.check_kernel().unwrap();
    }
    messages.serve(0, &format!("{SESSION} echo"));
    let shown = messages.daemon.cli(&["nic", "show", "mx1"]).unwrap();
    println!("{shown}");
    let process = shown.lines().find(|line| line.starts_with("session "));
    assert!(process.is_some_and(|line| line.contains(" active ")), "{shown}");
    register_as_an_ordinary_user(&messages);
    // Registrations are kept by the endpoints of either daemon, also for an ordinary user.
    messages.cross_restart(["tuned", "36"], Daemon::kill);
    messages.cross_restart(["cross", "12"], |daemon| {
        assert!(daemon.stop().is_some_and(|status| status.success()), "a clean stop");
    });
    for guest in &messages.guests {
        guest.check_kernel_alive().unwrap();
    }
    // A guest that reboots frees its endpoints at once.
    assert_eq!(messages.counter("mx1", "guest_sessions"), 1);
    messages.run(0, "(sleep 0.2; echo b >/proc/sysrq-trigger) >/dev/null 2>&1 &");
    messages.await_counter("mx1", "guest_sessions", 0);
    messages.await_counter("mx1", "endpoints", 0);
    messages.await_counter("mx1", "guest_memory_bytes", 0);
}

/// Messages of all lengths in a guest and between guests; the end of a killed process.
fn pass_messages(messages: &Messages) {
    let peer = messages.nics[0].mac();
    let measure = |from: usize, options: String| {
        let measured = messages.run(from, &format!("{TOOL} {options} --count 4 --verify"));
        println!("guest {from} {options}\n{measured}");
    };
    // Awake; each emulated message takes milliseconds, and the time of the poll counts.
    messages.serve(0, &format!("{TOOL} serve"));
    measure(1, format!("pingpong {peer} --sizes {SIZES}"));
    // A killed process frees its endpoint at once: the number can be opened again.
    messages.run(0, "killall -9 causeway-mx");
    messages.await_counter("mx1", "endpoints", 0);
    // Asleep.
    messages.serve(0, &format!("{TOOL} serve --blocking"));
    measure(0, format!("pingpong {peer} --sizes {FEW_SIZES} --blocking"));
    measure(1, format!("stream --both {peer} --sizes {SIZES} --blocking"));
}

/// Messages between a process of a guest and one of another host, by MXoE frames, in both directions.
fn pass_to_another_host(messages: &Messages, other: &OtherHost) {
    let ports = || {
        let port = other.daemon.cli(&["port", "show", &other.nic.name]);
        format!("{}\n{}", messages.ports(), port.unwrap_or_else(|e| e.to_string()))
    };
    let options = ["--sizes", SIZES_BETWEEN_HOSTS, "--count", "4", "--verify", "--blocking"];
    {
        let mut serving = other.tool();
        serving.args(["serve", "--blocking"]);
        let _serving = Process::start("causeway-mx", serving).unwrap();
        for command in ["pingpong", "stream --both"] {
            let script = format!("{TOOL} {command} {} {}", other.nic.mac(), options.join(" "));
            println!("{}", messages.run(0, &script));
        }
    }
    // Long messages leave from the memory of the guest's process in frames, without a copy.
    let [taken, copied, frames] =
        ["bytes_taken_total", "lent_bytes_copied_total", "frames_left_total"]
            .map(|counter| messages.counter("mx1", counter));
    println!("to the other host: {taken} bytes of long messages, {copied} copied, {frames} frames");
    assert!(taken > 8 << 20 && frames > 2000, "{}", ports());
    assert!(copied < taken / 10, "{copied} of {taken} bytes were copied: {}", ports());
    messages.serve(0, &format!("{TOOL} serve --blocking"));
    let mut to_guest = other.tool();
    to_guest.args(["pingpong", &messages.nics[0].mac()]).args(options);
    let measured = process::output(&mut to_guest);
    println!("{}", measured.unwrap_or_else(|e| panic!("{e}\n{}", ports())));
    messages.run(0, "killall -9 causeway-mx");
    messages.await_counter("mx1", "endpoints", 0);
}

/// Long messages of an ordinary user to whom the kernel refuses to report changes of memory: each has a
/// registration of its own, which is counted.
fn register_as_an_ordinary_user(messages: &Messages) {
    let nic = format!("0x{}", messages.nics[0].mac().replace(':', ""));
    let printed = messages.run(1, &format!("{SESSION} plain {nic}"));
    println!("{printed}");
    assert!(printed.contains("passed"), "{printed}");
}

/// Messages between processes of this host and of both guests, in both directions.
fn pass_between_host_and_guests(messages: &Messages) {
    let mut to_guest = messages.host_tool();
    let peer = messages.nics[0].mac();
    to_guest.args(["pingpong", &peer, "--sizes", FEW_SIZES, "--count", "4", "--verify"]);
    to_guest.arg("--blocking");
    let measured = process::output(&mut to_guest);
    println!("{}", measured.unwrap_or_else(|e| panic!("{e}\n{}", messages.ports())));
    messages.run(0, "killall -9 causeway-mx");
    let mut serving = messages.host_tool();
    serving.args(["serve", "--blocking"]);
    let _serving = Process::start("causeway-mx", serving).unwrap();
    messages.await_counter("mx3", "endpoints", 1);
    let peer = messages.nics[2].mac();
    for (guest, command) in [(1, "pingpong"), (0, "stream --both")] {
        let options = format!("--sizes {FEW_SIZES} --count 4 --verify --blocking");
        let script = format!("{TOOL} {command} {peer} {options}");
        println!("{}", messages.run(guest, &script));
    }
}
