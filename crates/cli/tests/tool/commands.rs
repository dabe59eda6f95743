//! The tool as a process against the daemon's control socket: its output and exit status.

use std::io::Read as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::common::{ControlSocket, Dir, model::Model, serve, serve_kept};

/// Returns exit status, stdout and stderr of `causeway --control SOCKET WORDS`.
fn causeway(socket: &Path, words: &str) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_causeway"))
        .env("CAUSEWAY_CONTROL", socket)
        .args(words.split_whitespace())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

struct Host(ControlSocket);

impl Host {
    /// Starts a daemon with two ports in group blue.
    fn start() -> Self {
        let host = Self(serve(Arc::new(Model::default())));
        host.ok("group add blue");
        host.ok("port add vm1-net --kind net --group blue --mac 52:54:00:00:00:01");
        host.ok("port add vm1-vsock --kind vsock --group blue --cid 3");
        host
    }

    #[track_caller]
    fn ok(&self, words: &str) -> String {
        let (status, out, error) = causeway(&self.0.socket, words);
        assert_eq!(status, 0, "{words}: {out}{error}");
        assert_eq!(error, "", "{words}");
        out
    }

    fn json(&self, words: &str) -> serde_json::Value {
        serde_json::from_str(&self.ok(words)).unwrap()
    }

    /// Asserts the exit status and a part of the error.
    #[track_caller]
    fn fails(&self, words: &str, status: i32, says: &str) {
        let (got, out, error) = causeway(&self.0.socket, words);
        assert_eq!(got, status, "{words}: {out}{error}");
        assert!(error.contains(says), "{words}: {error}");
    }
}

#[test]
fn cli_lists_are_aligned_tables_or_json() {
    let host = Host::start();
    let list = host.ok("port list");
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[0].starts_with("NAME       GROUP  KIND   ADDRESS            STATE"), "{list}");
    assert!(
        lines[1].starts_with("vm1-net    blue   net    52:54:00:00:00:01  listening"),
        "{list}"
    );
    assert!(lines[2].starts_with("vm1-vsock  blue   vsock  cid 3"), "{list}");
    for words in ["port list -j", "port list -o json", "-j port list --group blue"] {
        assert_eq!(host.json(words)[1]["cid"], 3, "{words}");
    }
    assert_eq!(
        host.ok("group list"),
        "NAME  FORWARDING  PORTS              LINKS\nblue  learn       vm1-net vm1-vsock  -\n"
    );
    assert!(host.ok("group show blue").contains("ports       vm1-net\n            vm1-vsock\n"));
    host.fails("port list --group red", 3, "see `causeway group list`");
}

#[test]
fn cli_nouns_and_verbs_may_be_abbreviated() {
    let host = Host::start();
    assert_eq!(host.ok("po l"), host.ok("port list"));
    assert_eq!(host.ok("pe l"), host.ok("peer list"));
    host.fails("p l", 2, "unrecognized subcommand");
    assert_eq!(host.ok("por sh vm1-net"), host.ok("port show vm1-net"));
    host.fails("x l", 2, "unrecognized subcommand");
}

#[test]
fn peer_list_and_show_print_nics_and_connections() {
    let host = Host::start();
    host.ok("port add mx0 --kind mx --group blue --interface eth1");
    let list = host.ok("peer list");
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[0].starts_with("PORT  MAC                HOSTNAME  KNOWN      STATE"), "{list}");
    let start = "mx0   02:00:00:00:00:09  far:0     announced  answers";
    assert!(lines[1].starts_with(start) && lines[1].contains("12.2 us"), "{list}");
    assert_eq!(host.json("peer list -j")[0]["counters"]["messages_sent_total"], 7);
    let shown = host.ok("peer show far:0");
    assert_eq!(shown, host.ok("peer show 02:00:00:00:00:09"));
    let lines: Vec<Vec<&str>> =
        shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(lines.contains(&vec!["3", "4", "12.2", "us", "1", "2", "80", "B"]), "{shown}");
    assert!(lines.contains(&vec!["endpoint", "3,", "partner", "4"]), "{shown}");
    assert!(shown.contains("messages_sent_total") && !shown.contains("resent_total"), "{shown}");
    assert_eq!(host.json("peer show far:0 -j")[0]["pairs"][0]["counters"]["resent_total"], 0);
    host.fails("peer show near:0", 3, "see `causeway peer list`");
    assert!(host.ok("port show mx0").contains("interface   eth1"));
    host.fails("port add mx1 --kind mx --group blue --interface a/b", 2, "interface");
}

#[test]
fn nic_list_and_show_print_nics_sessions_and_endpoints() {
    let host = Host::start();
    assert_eq!(host.ok("nic list").lines().count(), 1, "no port is a NIC");
    host.ok("port add vm1-mx --kind mx --group blue --adapter vm1-rdma --hostname vm1:0");
    let list = host.ok("nic list");
    let row: Vec<&str> = list.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(
        (&row[..2], row[3], row[4]),
        (&["vm1-mx", "blue"][..], "vm1:0", "vm1-rdma"),
        "{list}"
    );
    assert_eq!(row[5..9], ["1", "1", "1", "7"], "{list}");
    assert_eq!(host.json("nic list -j")[0]["process_list"], serde_json::json!([]));
    let shown = host.ok("nic show vm1-mx");
    assert!(shown.contains("was refused: 224 is the maximum (9 s ago)"), "{shown}");
    let rows = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.into_iter().find(|row| row.first() == Some(&"session")).unwrap();
    assert_eq!(
        row,
        [
            "session", "12", "active", "0", "8", "KiB", "in", "1", "3", "parked", "2", "7", "0",
            "B", "0", "0", "B"
        ],
        "{shown}"
    );
    let json = host.json("nic show vm1-mx -j");
    assert_eq!(json["process_list"][0]["endpoint_list"][0]["number"], 3);
    host.fails("nic show vm1-net", 3, "see `causeway nic list`");
    assert!(host.ok("nic list --help").contains("SESSIONS"));
}

#[test]
fn hca_list_and_show_print_adapters_and_queue_pairs() {
    let host = Host::start();
    assert_eq!(host.ok("hca list").lines().count(), 1, "no port is an adapter");
    host.ok("port add vm1-rdma --kind hca --group blue --mac 52:54:00:00:00:07 --regions-max 100");
    let list = host.ok("hca list");
    let row: Vec<&str> = list.lines().last().unwrap().split_whitespace().collect();
    let start = ["vm1-rdma", "blue", "52:54:00:00:00:07", "active", "2", "4", "8", "1.5", "MiB"];
    assert_eq!(row[..9], start, "{list}");
    assert_eq!(row[9..], ["7", "3", "KiB", "0"], "{list}");
    assert_eq!(host.json("hca list -j")[0]["queue_pairs_omitted"], 2);
    let shown = host.ok("hca show vm1-rdma");
    assert!(shown.contains("memory regions     8 of 100\n"), "{shown}");
    assert!(shown.contains("ready to send  vm2-rdma        9        2"), "{shown}");
    assert!(shown.contains("1 further queue pairs are not shown"), "{shown}");
    assert!(
        shown.contains("requests_total") && !shown.contains("flushed_requests_total"),
        "{shown}"
    );
    assert_eq!(host.json("hca show vm1-rdma -j")["queue_pair_list"][0]["type"], "RC");
    host.fails("hca show vm1-net", 3, "see `causeway hca list`");
    let port = host.ok("port show vm1-rdma");
    assert!(port.contains("memory") && !port.contains("features"), "{port}");
    assert!(port.contains("100") && port.contains("52:54:00:00:00:07"), "{port}");
    assert!(host.ok("port show vm1-rdma --qemu=11.1").contains("vfio-user-pci"));
    host.fails("port add x --kind hca --group blue --mtu 1500", 1, "mtu: only");
}

#[test]
fn port_show_prints_state_and_attachment_options() {
    let host = Host::start();
    let text = host.ok("port show vm1-net");
    for part in ["state        listening", "mtu          1500", "transmit_packets_total      3"] {
        assert!(text.contains(part), "{part} not in\n{text}");
    }
    let qemu = host.ok("port show vm1-net --qemu");
    assert!(qemu.contains("virtio-net-pci") && qemu.contains("share=on"), "{qemu}");
    let old = host.ok("port show vm1-net --qemu=7.2");
    assert!(old.contains(",reconnect=1") && old.contains(",vectors=0"), "{old}");
    let new = host.ok("port show vm1-net --qemu=11.1.3");
    assert!(new.contains(",reconnect-ms=1000") && !new.contains("vectors"), "{new}");
    host.fails("port show vm1-net --qemu=new", 2, "expected a version of QEMU");
    assert!(host.ok("port show vm1-vsock --qemu").contains("vhost-user-vsock-pci"));
    assert!(host.ok("port show vm1-net --libvirt").contains("<interface type='vhostuser'>"));
    host.fails("port show vm1-net --libvirt --qemu", 2, "cannot be used with");
    assert_eq!(host.ok("port show vm1-net --for qemu --qemu-version 7.2"), old);
    let json = host.json("port show vm1-net --for qemu --qemu-version 11.1 --memory 2G -j");
    assert_eq!((&json["version"], &json["arguments"][0]), (&"11.1".into(), &"-object".into()));
    assert!(json["arguments"][1].as_str().unwrap().contains("size=2G"), "{json}");
    let elements = host.json("port show vm1-net --for libvirt -j");
    assert_eq!(elements["elements"][1]["parent"], "domain/devices", "{elements}");
    for vmm in ["cloud-hypervisor", "crosvm", "libkrun"] {
        let text = host.ok(&format!("port show vm1-net --for {vmm}"));
        assert!(text.contains("vm1-net.sock") && text.contains("not tried"), "{text}");
    }
    host.fails("port show vm1-net --for xen", 2, "possible values: qemu, libvirt");
    host.fails("port show vm1-net --memory 2G", 2, "--for <VMM>");
    host.fails("port show vm1-net --for qemu --memory 2X", 2, "expected 1M to 16T");
    host.fails("port show vm1-net --for qemu --lines -j", 2, "cannot be used with");
    host.fails("port show vm1-net --for qemu --lines -o json", 2, "--lines");
    host.fails("port show vm1-net --for libvirt --lines", 2, "use -o json");
    host.ok("port add mx0 --kind mx --group blue");
    host.fails("port show mx0 --for qemu", 1, "to which processes attach");
    host.ok("port add fc --kind tap --group blue --learn");
    assert!(host.ok("port show fc --for firecracker").contains("ip link set fc master br-fc\n"));
    host.fails("port show fc --for qemu", 1, "--for firecracker");
    host.fails("port show vm1-net --for firecracker", 1, "add a port of kind tap");
    host.fails("port show vm9", 3, "port \"vm9\" does not exist; see `causeway port list`");
}

#[test]
fn vm_list_and_show_group_ports_by_their_vm() {
    let host = Host::start();
    host.ok("port add vm1-rdma --kind hca --group blue --mac 52:54:00:00:00:07");
    host.ok("port add front --kind net --group blue --vm web --mac 52:54:00:00:00:08");
    host.ok("port add mx0 --kind mx --group blue");
    let list = host.ok("vm list");
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 3, "{list}");
    assert!(lines[0].starts_with("VM   GROUPS  RUNNING  PORTS"), "{list}");
    assert!(lines[1].starts_with("vm1  blue    0 of 3   vm1-net vm1-rdma vm1-vsock"), "{list}");
    assert!(lines[1].ends_with("52:54:00:00:00:01, 52:54:00:00:00:07, cid 3"), "{list}");
    assert!(lines[2].starts_with("web  blue    0 of 1   front"), "{list}");
    let json = host.json("vm list -j");
    assert_eq!((&json[1]["vm"], &json[1]["ports"][0]["name"]), (&"web".into(), &"front".into()));
    assert_eq!(host.json("vm show web -j")["ports"][0]["vm"], "web");
    assert!(host.ok("vm show vm1").contains("vm1-vsock  blue   vsock  cid 3"));
    assert!(host.ok("port show vm1-net").contains("vm           vm1\n"));
    assert!(host.ok("port show front").contains("vm           web\n"));
    assert!(host.ok("port list").lines().any(|line| line.contains(" web ")));
    host.fails("vm show nobody", 3, "see `causeway vm list` (vm1, web)");
    host.fails("port add y --kind net --group blue --vm a/b", 2, "expected 1 to 63 letters");
    host.fails("port add y --kind mx --group blue --vm web", 1, "vm: only a port of kind");
}

#[test]
fn vm_show_for_a_vmm_attaches_all_ports_with_one_memory() {
    let host = Host::start();
    let words = "vm show vm1 --for qemu --qemu-version 7.2 --memory 2G --lines";
    let (status, lines, notes) = causeway(&host.0.socket, words);
    assert_eq!(status, 0, "{notes}");
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.iter().filter(|line| line.contains("memory-backend-memfd")).count(), 1);
    assert_eq!(lines.iter().filter(|line| **line == "-chardev").count(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains(' ') && !line.starts_with('#')), "{lines:?}");
    assert!(notes.starts_with("causeway: For QEMU 7.2."), "{notes}");
    let text = host.ok("vm show vm1 --for libvirt --memory 512M");
    assert!(text.contains("<memory unit='MiB'>512</memory>"), "{text}");
    let parts = ["<memoryBacking>", "<interface ", "<qemu:commandline>"];
    assert!(parts.iter().all(|part| text.matches(part).count() == 1), "{text}");
    let text = host.ok("vm show vm1 --for ch");
    assert!(text.contains("--net vhost_user=on") && text.contains("device_type=vsock"), "{text}");
    host.ok("port add vm1-rdma --kind hca --group blue");
    host.fails("vm show vm1 --for crosvm", 1, "port vm1-rdma is an RDMA adapter");
    host.fails("vm show vm1 --for qemu --qemu-version 7.2", 1, "QEMU 10.1 or later is needed");
    assert!(host.ok("vm show vm1 --for qemu --qemu-version 10.1").contains("vfio-user-pci"));
}

#[test]
fn port_add_and_delete_have_stable_exit_statuses() {
    let host = Host::start();
    let out = host.ok("port add b --kind net --group blue --mtu 9000 --queue-pairs 2 --learn");
    assert!(out.contains("port b listens on /"), "{out}");
    assert_eq!(host.json("port show b -j")["mtu"], 9000);
    host.fails("port add b --kind net --group blue", 1, "exists");
    host.ok("port add x --kind net --group blue --offloads xdp");
    assert_eq!(host.json("port show x -j")["offloads"], "xdp");
    assert!(host.ok("port show x --qemu").contains("guest_csum=off"));
    host.ok("port del x");
    host.ok("port add b --kind net --group blue --mtu 9000 --may-exist");
    host.fails(
        "port add b --kind net --group blue --mtu 1500 --may-exist",
        1,
        "mtu 9000: expected 1500",
    );
    host.fails("port add c --kind net --group red", 3, "add it with `causeway group add red`");
    host.fails(
        "port add c --kind net --group blue --cid 3",
        1,
        "cid: only a port of kind \"vsock\" has it",
    );
    host.fails(
        "port add c --kind vsock --group blue",
        1,
        "cid: a port of kind \"vsock\" needs one",
    );
    host.fails("port add c --kind vsock --group blue --cid 2", 2, "cid");
    host.fails("port add c --kind net --group blue --mac 1:2", 2, "six hexadecimal bytes");
    host.fails("port add c/d --kind net --group blue", 2, "expected 1 to 63 letters");
    host.fails("port add c --group blue", 2, "--kind");
    assert_eq!(host.ok("port del b"), "port b deleted\n");
    host.fails("port del b", 3, "port \"b\" does not exist");
    assert_eq!(host.json("port del b --if-exists -j")["changed"], false);
}

#[test]
fn config_export_and_diff_print_the_running_state() {
    let listed = "[[group]]\nname = \"blue\"\n";
    let host = Host(serve_kept(Arc::new(Model::default()), listed).0);
    assert_eq!(host.ok("config diff"), "");
    host.ok("port add n --kind net --group blue --mac 52:54:00:00:00:01");
    host.ok("port add e --kind net --group blue --ephemeral");
    host.ok("rule add reject --to blue/3:22");
    let toml = host.ok("config export");
    assert!(toml.contains("[[port]]\nname = \"n\"\n") && toml.contains("name = \"e\""), "{toml}");
    assert_eq!(host.json("config export -j")["toml"], toml);
    let (status, out, error) = causeway(&host.0.socket, "config diff");
    assert_eq!((status, error.as_str()), (1, ""));
    // Status 1 would be a difference.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut unwritten = Command::new(env!("CARGO_BIN_EXE_causeway"));
    unwritten.env("CAUSEWAY_CONTROL", &host.0.socket).args(["config", "diff"]).stdout(full);
    assert_eq!(unwritten.status().unwrap().code(), Some(2));
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("+ port e: ") && !lines[0].ends_with("(kept)"), "{out}");
    assert!(lines[1].starts_with("+ port n: ") && lines[1].ends_with("   (kept)"), "{out}");
    assert_eq!(lines[2..], ["+ rule 0: reject from */*:* to blue/3:22   (kept)"]);
    let export = host.0.dir.file("export.toml");
    std::fs::write(&export, &toml).unwrap();
    assert_eq!(host.ok(&format!("config diff -f {}", export.display())), "");
    std::fs::write(&export, "[[port]]\n").unwrap();
    host.fails(&format!("config diff -f {}", export.display()), 2, "export.toml:1:1");
    host.fails("config diff -f /nonexistent", 2, "/nonexistent");
    // The daemon's notes are on standard error.
    let (status, out, error) = causeway(&host.0.socket, "group del blue");
    assert_eq!((status, out.as_str()), (1, ""), "{error}");
    for words in ["port del n", "port del e"] {
        host.ok(words);
    }
    let (status, _, error) = causeway(&host.0.socket, "group del blue");
    assert_eq!(status, 0, "{error}");
    assert!(error.starts_with("causeway: group blue returns at the next start"), "{error}");
}

#[test]
fn port_socket_paths_are_made_absolute_by_the_tool() {
    let host = Host::start();
    host.ok("port add r --kind net --group blue --socket r.sock");
    let socket = host.json("port show r -j")["socket"].as_str().unwrap().to_owned();
    assert_eq!(Path::new(&socket), std::env::current_dir().unwrap().join("r.sock"));
}

#[test]
fn group_add_and_delete() {
    let host = Host::start();
    host.fails("group add blue", 1, "exists");
    assert!(host.ok("group add blue --may-exist").contains("exists already"));
    host.fails("group del blue", 1, "has ports");
    host.fails("group del red", 3, "does not exist");
    host.ok("group del red --if-exists");
    host.ok("group add red");
    assert_eq!(host.ok("group del red"), "group red deleted\n");
}

#[test]
fn rule_list_keeps_its_order() {
    let host = Host::start();
    host.ok("rule add reject --from blue/3:* --to blue/4:22");
    host.ok("rule add accept --to host:1-1023 --index 0");
    assert!(host.ok("rule add accept --to host:1-1023 --may-exist").contains("exists already"));
    let list = host.ok("rule list");
    let rows: Vec<Vec<&str>> = list.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["INDEX", "ACTION", "FROM", "TO", "HITS", "ORIGIN"]);
    assert_eq!(rows[1], ["0", "accept", "*/*:*", "host:1-1023", "0", "host"]);
    assert_eq!(rows[2], ["1", "reject", "blue/3:*", "blue/4:22", "0", "host"]);
    assert_eq!(rows.len(), 3);
    host.fails("rule add drop", 2, "possible values: accept, reject");
    host.fails("rule add reject --to blue", 2, "expected GROUP/CID:PORT");
    host.fails("rule add reject --from blue/3:* --to red/4:1", 1, "no traffic crosses groups");
    host.fails("rule del 7", 3, "see `causeway rule list`");
    host.ok("rule del 0");
    host.ok("rule del 7 --if-exists");
}

#[test]
fn cli_prints_traces_stats_and_info() {
    let host = Host::start();
    let text = host.ok("trace frame --from vm1-net --to ff:ff:ff:ff:ff:ff");
    let expected = "verdict  drop\nto       -\nbecause  1. TraceQuery { what: \"frame\"";
    assert!(text.contains(expected), "{text}");
    assert_eq!(host.json("trace connect --from vm1-vsock --cid 4 --port 22 -j")["verdict"], "drop");
    assert!(host.ok("trace connect --group blue --cid 3 --port 22").contains("\"connect\""));
    assert!(host.ok("trace verbs vm1-net vm1-vsock").contains("\"verbs\""));
    host.fails("trace connect --cid 4 --port 22", 2, "--from");
    let stats = host.ok("stats");
    assert!(stats.starts_with("NAME       STATE      RX-PACKETS"), "{stats}");
    assert_eq!(host.ok("stats --port vm1-net").lines().count(), 2);
    host.fails("stats --port vm9", 3, "does not exist");
    let rates = host.json("stats --interval 1 --count 1 -j");
    assert_eq!(rates["ports"][0]["rates"]["receive_packets_per_second"], 0.0);
    let info = host.ok("info");
    assert!(info.contains(&format!("pid      {}", std::process::id())), "{info}");
}

#[test]
fn shutdown_requests_a_stop() {
    let host = Host::start();
    assert_eq!(host.ok("shutdown"), "causewayd stops\n");
    assert_eq!(host.json("shutdown --release -j")["changed"], true);
}

#[test]
fn cli_without_a_daemon_names_the_remedy() {
    let dir = Dir::new();
    let (status, _, error) = causeway(&dir.file("none.sock"), "port list");
    assert_eq!(status, 4);
    assert!(error.contains("systemctl start causewayd") && error.contains("--control"), "{error}");
    // A socket left by a killed daemon.
    drop(UnixListener::bind(dir.file("old.sock")).unwrap());
    assert_eq!(causeway(&dir.file("old.sock"), "info").0, 4);
    let long = format!("--control /{} info", "x".repeat(200));
    assert_eq!(causeway(&dir.file("none.sock"), &long).0, 2);
}

#[test]
fn cli_times_out_on_a_silent_daemon() {
    let dir = Dir::new();
    let socket = dir.file("control.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let (status, _, error) = causeway(&socket, "info --timeout 1");
    assert_eq!(status, 5);
    assert!(error.contains("did not answer within 1 s"), "{error}");
    drop(listener);
}

#[test]
fn hostile_daemons_get_an_error_each() {
    for reply in ["garbage\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n[", ""] {
        let dir = Dir::new();
        let socket = dir.file("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let answer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            std::io::Write::write_all(&mut stream, reply.as_bytes()).unwrap();
        });
        let (status, _, error) = causeway(&socket, "port list");
        assert_eq!(status, 1, "{error}");
        assert!(error.contains("unexpected reply"), "{error}");
        answer.join().unwrap();
    }
}

#[test]
fn cli_help_completions_and_manual_have_one_definition() {
    let dir = Dir::new();
    let none = dir.file("none.sock");
    assert_eq!(causeway(&none, "").0, 2);
    let (status, help, _) = causeway(&none, "--help");
    assert_eq!(status, 0);
    assert!(help.contains("Examples:") && help.contains("4 no daemon"), "{help}");
    assert!(causeway(&none, "port add --help").1.contains("causeway port add vm3-net"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(causeway(&none, &format!("completion {shell}")).1.contains("port"));
    }
    assert!(causeway(&none, "man").1.contains(".TH causeway 1"));
    let (status, _, _) = causeway(&none, &format!("man {}", dir.0.display()));
    assert_eq!(status, 0);
    let page = std::fs::read_to_string(dir.file("causeway-port-add.1")).unwrap();
    assert!(page.contains("queue\\-pairs"), "{page}");
    assert!(page.contains(".nf\nExamples:\n  causeway port add vm3\\-net"), "{page}");
}
