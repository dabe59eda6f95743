//! Messages in stock guests with a host channel adapter: a process reaches the daemon through its
//! adapter by libibverbs, with no driver and no module of its own.

mod common;

use causeway_vm::daemon::{Adapter, MxNic, Setup};
use causeway_vm::rdma::{self, Group, Programs, RdmaGuest, Suite};
use causeway_vm::{Daemon, build};
use common::{LIMIT, has_rdma_parts};
use std::time::Duration;

/// Path of a program in the guests.
const CHECK: &str = "/usr/bin/adapter-check";
/// The message tool in the guests; its library is beside it.
const TOOL: &str = "/usr/bin/causeway-mx";
/// Time limit of a measurement in an emulated guest.
const MEASURED: Duration = Duration::from_secs(240);
/// Lengths of messages: in the entry of a ring, in the data of a ring, and by regions in several pulls.
const SIZES: &str = "0,8,33,4K,32K,33K,64K,1M";

#[test]
fn mx_library_drives_the_adapter_of_a_stock_guest() {
    for suite in [Suite::Trixie, Suite::Bookworm] {
        if !has_rdma_parts(suite, Programs::Verbs) {
            continue;
        }
        let group = Group::boot(suite, Programs::Verbs, 1).unwrap_or_else(|e| panic!("{e}"));
        let [guest] = group.guests.as_slice() else { panic!("one guest") };
        let program = build::stripped(&build::adapter_check().unwrap()).unwrap();
        guest.install(CHECK, &program).unwrap();
        let printed = guest
            .run(&[CHECK], LIMIT)
            .unwrap_or_else(|e| panic!("{e}\n--- causewayd ---\n{}", group.daemon.log()));
        println!("{suite:?}: {printed}");
        assert!(printed.contains("passed"), "{printed}");
        guest.check_kernel().unwrap();
    }
}

/// A daemon with two guests of a group, and a NIC for the processes of each. Guests drop first.
struct Messages {
    guests: Vec<RdmaGuest>,
    nics: Vec<MxNic>,
    daemon: Daemon,
}

impl Messages {
    fn boot(suite: Suite) -> Self {
        let numbers = [1_u8, 2];
        let adapter =
            |number| Adapter { name: format!("hca{number}"), group: "blue".into(), number };
        let nic = |number| MxNic {
            name: format!("mx{number}"),
            group: "blue".into(),
            number,
            adapter: Some(format!("hca{number}")),
            ..MxNic::default()
        };
        let nics: Vec<MxNic> = numbers.into_iter().map(nic).collect();
        let adapters = numbers.into_iter().map(adapter).collect();
        let setup = Setup { adapters, nics: nics.clone(), ..Setup::default() };
        let daemon = Daemon::with(setup).unwrap();
        let tool = build::message_tool().unwrap();
        let library = tool.with_file_name("libmyriexpress.so");
        let files = [(TOOL, tool), ("/usr/bin/libmyriexpress.so", library)]
            .map(|(path, file)| (path, build::stripped(&file).unwrap()));
        let machine = rdma::machine(suite, Programs::Verbs).unwrap().with_files(&files).unwrap();
        let start = |number: u8| {
            let socket = daemon.adapter_socket(&format!("hca{number}"));
            RdmaGuest::start(&machine, &format!("mx{number}"), &socket, number).unwrap()
        };
        let mut guests: Vec<RdmaGuest> = numbers.into_iter().map(start).collect();
        for guest in &mut guests {
            guest
                .await_ready()
                .unwrap_or_else(|e| panic!("{e}\n--- causewayd ---\n{}", daemon.log()));
        }
        Self { guests, nics, daemon }
    }

    /// Runs a script in a guest.
    fn run(&self, guest: usize, script: &str) -> String {
        let ran = self.guests[guest].run(&["sh", "-c", script], MEASURED);
        ran.unwrap_or_else(|e| {
            let ports = self.daemon.cli(&["port", "show"]).unwrap_or_else(|e| e.to_string());
            panic!("{script}: {e}\n{ports}\n--- causewayd ---\n{}", self.daemon.log())
        })
    }

    /// Starts a server of the tool in a guest, and waits until its endpoint is open.
    fn serve(&self, guest: usize, options: &str) {
        let script = format!(
            "{TOOL} serve {options} >/tmp/serve.log 2>&1 & for i in $(seq 100); do \
             grep -q 'is open' /tmp/serve.log && exit 0; sleep 0.2; done; cat /tmp/serve.log; exit 1"
        );
        self.run(guest, &script);
    }
}

#[test]
fn mx_messages_pass_within_and_between_stock_guests() {
    let suite = Suite::Trixie;
    if !has_rdma_parts(suite, Programs::Verbs) {
        return;
    }
    let messages = Messages::boot(suite);
    // The adapter is found without the variable, and by its name.
    for variable in ["", "CAUSEWAY_MX=adapter", "CAUSEWAY_MX=adapter:mlx5_0:1"] {
        let info = messages.run(0, &format!("{variable} {TOOL} info --json"));
        assert!(info.contains(&messages.nics[0].mac()), "{variable}: {info}");
    }
    messages.serve(0, "");
    let peer = messages.nics[0].mac();
    // Within a guest asleep, between guests awake: each emulated message takes milliseconds.
    for (from, options) in [(0, "--blocking"), (1, "")] {
        for command in ["pingpong", "stream --both"] {
            let measured = messages.run(
                from,
                &format!("{TOOL} {command} {peer} --sizes {SIZES} --count 8 --verify {options}"),
            );
            println!("guest {from} {command} {options}\n{measured}");
        }
    }
    // A killed process frees its endpoint at once: the number can be opened again.
    messages.run(0, "killall -9 causeway-mx");
    messages.serve(0, "--once");
    messages.run(1, &format!("{TOOL} pingpong {peer} --sizes 8,64K --count 5 --verify"));
    for guest in &messages.guests {
        guest.check_kernel().unwrap();
    }
}
