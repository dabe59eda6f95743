//! A hostile guest in a real virtual machine: it drives its devices by hand and commits a violation
//! in each case. Its own port may close, with a reason; every other port continues without
//! interruption.

mod common;

use causeway_guest_tool::hostile::Verdict;
use causeway_guest_tool::transport::Target;
use causeway_guest_tool::{client, limits::STREAM_PORT, serve};
use causeway_vm::daemon::{HOST_CID, Member};
use causeway_vm::{Daemon, Guest, Machine, traffic};
use common::bystanders::Bystanders;
use common::{BRIEF, LIMIT};
use serde_json::Value;

/// Expected effect on the guest's port.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The port closes, with this reason.
    Closes(&'static str),
    /// The port continues.
    GoesOn,
    /// The port continues, and this counter rises.
    Counts(&'static str),
    /// The port continues, on the same connection, with this note.
    Notes(&'static str),
    /// Either: the VMM may filter the violation, or the guest may win the race.
    Either,
}
use End::*;

/// Violations by a network device.
const NET: &[(&str, End)] = &[
    ("none", GoesOn),
    ("ring_in_a_hole", Either),
    ("used_ring_in_a_hole", Either),
    ("ring_over_the_end_of_memory", Either),
    ("ring_address_wraps", Either),
    ("ring_out_of_line", Either),
    ("used_ring_over_the_descriptors", Either),
    ("available_ring_over_the_used_ring", Either),
    ("queue_size_zero", Either),
    ("queue_size_odd", Either),
    ("queue_size_too_large", Either),
    ("queue_enabled_twice", GoesOn),
    ("queue_moved_while_it_runs", GoesOn),
    ("one_queue_alone", Either),
    ("driver_ok_without_features", Either),
    ("driver_ok_without_queues", Either),
    ("features_never_offered", Either),
    ("memory_taken_away", Either),
    ("reset_in_flight", GoesOn),
    ("reset_storm", GoesOn),
    ("doorbell_storm", GoesOn),
    ("doorbells_of_no_queue", GoesOn),
    ("config_written_while_running", GoesOn),
    ("index_jump", Closes("jumped")),
    ("head_out_of_range", Closes("head 71")),
    ("head_twice", Either),
    ("cycle", Closes("chain of more than")),
    ("next_out_of_range", Closes("descriptor 999")),
    ("chain_in_a_hole", Closes("not granted")),
    ("address_wraps", Closes("not granted")),
    ("length_of_four_gigabytes", Closes("not granted")),
    ("write_only", GoesOn),
    ("no_bytes", GoesOn),
    ("readable_after_writable", Closes("readable descriptor after a writable one")),
    ("table_within_table", Closes("table within")),
    ("table_that_is_a_cycle", Closes("chain of more than")),
    ("table_too_long", Closes("chain of more than")),
    ("table_of_odd_length", Closes("table of 17 bytes")),
    ("table_of_no_length", Closes("table of 0 bytes")),
    ("table_in_a_hole", Closes("not granted")),
    ("rewritten_in_flight", Either),
    ("forged_source", Counts("drop")),
    ("runts", Counts("drop")),
    ("frame_too_long", Counts("drop")),
    ("frame_in_single_bytes", GoesOn),
    ("receive_chain_without_end", Closes("chain of more than")),
    ("receive_buffers_read_only", Closes("buffer of 0 bytes")),
    ("receive_buffers_in_a_hole", Closes("not granted")),
    ("receive_buffers_of_no_bytes", Closes("buffer of 0 bytes")),
    ("segmentation_of_no_kind", Counts("drop")),
    ("segments_of_no_size", Counts("drop")),
    ("segments_of_one_byte", Either),
    ("checksum_outside_the_frame", Counts("drop")),
    ("header_lengths_that_lie", Either),
    ("header_of_random_bytes", Counts("drop")),
    ("none", GoesOn),
];

/// Violations by a socket device. QEMU does not reconnect it, so the port must survive all of them.
const VSOCK: &[(&str, End)] = &[
    ("none", GoesOn),
    ("unknown_operations", Counts("stray")),
    ("unknown_types", Counts("stray")),
    ("packets_of_no_connection", Counts("stray")),
    ("destinations_that_nobody_has", Counts("stray")),
    ("shutdown_flags_of_no_meaning", GoesOn),
    ("credit_for_what_never_came", Notes("claims more")),
    ("second_connect_of_a_connection", GoesOn),
    ("type_changed_on_a_connection", Notes("socket type 2")),
    ("flood_of_connects", GoesOn),
    ("resets_never_taken", GoesOn),
    ("queue_enabled_twice", GoesOn),
    ("reset_storm", GoesOn),
    ("doorbell_storm", GoesOn),
    ("none", GoesOn),
];

struct Scene {
    guest: Guest,
    members: Vec<Member>,
    bystanders: Bystanders,
    daemon: Daemon,
}

impl Scene {
    fn new() -> Self {
        let names = ["hostile", "echo", "calm1", "calm2"];
        let members: Vec<_> =
            names.iter().zip(1..).map(|(name, n)| Member::new(name, "blue", n)).collect();
        let daemon = Daemon::start(&members).unwrap();
        let bystanders = Bystanders::start(&daemon, &members[1..]);
        let guest = boot(&daemon, &members[0]);
        Self { guest, members, bystanders, daemon }
    }

    fn port(&self, name: &str) -> Value {
        let text = self.daemon.cli(&["port", "show", name, "-o", "json"]).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Runs a case. Returns a line for the table of results, or the deviation from the expected
    /// effect.
    fn case(&mut self, kind: &str, case: &str, end: End) -> Result<String, String> {
        let name = format!("hostile-{kind}");
        let before = self.port(&name);
        let peer = match kind {
            "net" => self.members[1].mac(),
            _ => self.members[1].cid.to_string(),
        };
        let argv = ["causeway-guest", "hostile", kind, case, &peer];
        let verdict: Verdict = self.guest.run_json(&argv, LIMIT).map_err(|e| e.to_string())?;
        let after = self.port(&name);
        self.daemon.check().map_err(|e| e.to_string())?;
        self.bystanders.go_on()?;
        for calm in &self.members[1..] {
            for kind in ["net", "vsock"] {
                let port = self.port(&format!("{}-{kind}", calm.name));
                if port["faults_total"] != 0 {
                    return Err(format!("{} was hurt: {port}", calm.name));
                }
            }
        }
        let faults = |view: &Value| view["faults_total"].as_u64().unwrap_or(0);
        let closed = faults(&after) - faults(&before);
        let fault = after["fault"].as_str().unwrap_or("");
        let good = match end {
            Closes(word) => closed > 0 && fault.contains(word),
            GoesOn => closed == 0,
            Counts(word) => closed == 0 && counted(&after, word) > counted(&before, word),
            Notes(word) => {
                after["connects_total"] == before["connects_total"] && fault.contains(word)
            }
            Either => true,
        };
        let became = if closed > 0 { fault } else { "goes on" };
        let line = format!(
            "{kind:5} {case:36} {became} ({} tries, {} ms)",
            verdict.tries, verdict.heals_ms
        );
        if good { Ok(line) } else { Err(format!("{line}, expected {end:?}: {after}")) }
    }
}

/// Returns the sum of the counters whose names contain `word`.
fn counted(view: &Value, word: &str) -> u64 {
    let counters = view["counters"].as_object();
    let hits = counters.into_iter().flatten().filter(|(name, _)| name.contains(word));
    hits.filter_map(|(_, value)| value.as_u64()).sum()
}

fn boot(daemon: &Daemon, member: &Member) -> Guest {
    let mut spec = daemon.guest(member);
    spec.reconnects = true;
    let machine = Machine::qemu().unwrap();
    let mut guests = Guest::boot_all(&machine, vec![spec])
        .unwrap_or_else(|e| panic!("{e}\n--- log of causewayd ---\n{}", daemon.log()));
    guests.remove(0)
}

#[test]
fn hostile_guest_in_a_virtual_machine() {
    let mut scene = Scene::new();
    let mut wrong = Vec::new();
    for (kind, cases) in [("net", NET), ("vsock", VSOCK)] {
        for (case, end) in cases {
            match scene.case(kind, case, *end) {
                Ok(line) => println!("{line}"),
                Err(why) => {
                    println!("WRONG {why}");
                    wrong.push(why);
                }
            }
        }
    }
    let log = scene.daemon.log();
    assert!(wrong.is_empty(), "{}\n--- causewayd ---\n{log}", wrong.join("\n"));
    kernel_takes_them_back(&scene);
    forged_cid_closes_the_port(&mut scene);
}

/// Checks that the kernel's own drivers work with the same devices after all cases.
fn kernel_takes_them_back(scene: &Scene) {
    for kind in ["net", "vsock"] {
        let ran = scene.guest.run(&["causeway-guest", "hostile", "rebind", kind], LIMIT).unwrap();
        assert_eq!(ran.code, Some(0), "{kind}: {ran:?}");
    }
    let (own, peer) = (scene.members[0].ip(), scene.members[1].ip());
    let script = format!(
        "i=$(ls /sys/class/net | grep -v lo | head -n 1); ip link set $i up && \
         ip addr add {own}/24 dev $i && arping -c 3 -w 20 -f -I $i {peer}"
    );
    let ran = scene.guest.run(&["sh", "-c", &script], LIMIT).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let path = scene.daemon.host_listener(&scene.members[0], STREAM_PORT);
    serve::spawn(Target::Unix(path.clone())).unwrap();
    scene.daemon.open_to_daemon(&path).unwrap();
    let host = Target::Vsock(HOST_CID, STREAM_PORT);
    traffic::stream(&scene.guest, &host, 4096, 1 << 20, BRIEF).unwrap();
    let into = Target::Hybrid(scene.daemon.host_socket(&scene.members[0]), STREAM_PORT);
    client::ping_pong(&into, 4096, 10, BRIEF).unwrap();
}

/// Runs the case that no vsock port survives; a new virtual machine on the same port works.
fn forged_cid_closes_the_port(scene: &mut Scene) {
    let peer = scene.members[1].cid.to_string();
    let argv = ["causeway-guest", "hostile", "last", "forged_source", &peer];
    let ran = scene.guest.run(&argv, LIMIT).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let port = scene.port("hostile-vsock");
    assert!(port["fault"].as_str().unwrap_or("").contains("forged"), "{port}");
    scene.bystanders.go_on().unwrap();
    scene.guest.kill();
    scene.guest = boot(&scene.daemon, &scene.members[0]);
    let into = Target::Hybrid(scene.daemon.host_socket(&scene.members[0]), STREAM_PORT);
    client::ping_pong(&into, 4096, 10, BRIEF).unwrap();
    scene.bystanders.go_on().unwrap();
}
