//! The provider as users of libfabric see it.

mod common;
mod restart;

use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;

use common::{Folder, Host, Output, command, compile, cores, is_installed, provider, run};

/// The output of `fi_info -v` for an endpoint, in order, without values that differ between its
/// versions.
const VERBOSE: &[&str] = &[
    "caps: [ FI_MSG, FI_RMA, FI_TAGGED, FI_ATOMIC, FI_READ, FI_WRITE, FI_RECV, FI_SEND, \
     FI_REMOTE_READ, FI_REMOTE_WRITE, FI_MULTI_RECV, FI_LOCAL_COMM, FI_REMOTE_COMM, FI_SOURCE, \
     FI_DIRECTED_RECV ]",
    "mode: [  ]",
    "addr_format: FI_FORMAT_UNSPEC",
    "src_addrlen: 24",
    "dest_addrlen: 0",
    "fi_tx_attr:",
    "inject_size: 4096",
    "size: 1024",
    "iov_limit: 8",
    "rma_iov_limit: 1",
    "fi_rx_attr:",
    "size: 1024",
    "iov_limit: 8",
    "fi_ep_attr:",
    "type: FI_EP_RDM",
    "max_msg_size: 4294967231",
    "mem_tag_format: 0x1555555555555555",
    "tx_ctx_cnt: 1",
    "fi_domain_attr:",
    "name: a:0",
    "threading: FI_THREAD_SAFE",
    "resource_mgmt: FI_RM_ENABLED",
    "mr_mode: [  ]",
    "mr_key_size: 8",
    "cq_data_size: 8",
    "fi_fabric_attr:",
    "name: causeway",
    "prov_name: causeway",
    "prov_version: 0.1",
];

/// Returns the first line of `wanted` that is not in `text` in this order.
fn missing<'a>(text: &str, wanted: &[&'a str]) -> Option<&'a str> {
    let mut lines = text.lines().map(str::trim);
    wanted.iter().find(|&&wanted| !lines.any(|line| line == wanted)).copied()
}

/// Returns the number of occurrences of a line.
fn count(text: &str, line: &str) -> usize {
    text.lines().filter(|found| found.trim() == line).count()
}

#[test]
fn every_board_is_offered_once_with_all_that_it_has() {
    if !is_installed("fi_info") {
        return;
    }
    let (host, provider) = (Host::new(&["a", "b"]), provider());
    let boards = host.sockets(&["a", "b"]);
    for core in cores() {
        let info = |arguments: &[&str]| {
            let mut info = command("fi_info", &provider, core.as_deref(), &boards);
            run(info.args(["-p", "causeway"]).args(arguments))
        };
        let short = info(&[]);
        let expected = ["provider: causeway", "fabric: causeway", "domain: a:0", "domain: b:0"];
        assert!(short.good && missing(&short.out, &expected).is_none(), "{core:?} {short:?}");
        assert_eq!(count(&short.out, "provider: causeway"), 2, "{core:?} {short:?}");
        let verbose = info(&["-v", "-d", "a:0"]);
        assert_eq!(missing(&verbose.out, VERBOSE), None, "{core:?} {verbose:?}");
        assert_eq!(count(&verbose.out, "prov_name: causeway"), 1, "{core:?} {verbose:?}");
        assert_eq!(verbose.err, "", "{core:?}");
        // Not provided: connections, datagrams, other domains and capabilities.
        for arguments in [
            ["-t", "FI_EP_MSG"],
            ["-t", "FI_EP_DGRAM"],
            ["-d", "c:0"],
            ["-f", "other"],
            ["-c", "FI_MSG|FI_TRIGGER"],
        ] {
            let none = info(&arguments);
            assert!(!none.good && none.out.is_empty(), "{core:?} {arguments:?} {none:?}");
        }
        let some = info(&["-t", "FI_EP_RDM", "-c", "FI_TAGGED|FI_DIRECTED_RECV"]);
        assert!(some.good, "{core:?} {some:?}");
    }
}

/// Checks that a program found no provider, and that a single line with these words contains the
/// reason.
fn assert_reason(output: &Output, words: &[&str]) {
    let ours: Vec<&str> = output.err.lines().filter(|line| line.contains(":causeway:")).collect();
    let [line] = ours[..] else { panic!("one line: {output:?}") };
    assert!(!output.good && words.iter().all(|word| line.contains(word)), "{output:?}");
}

#[test]
fn provider_reports_why_it_has_no_nic() {
    if !is_installed("fi_info") {
        return;
    }
    let (folder, provider) = (Folder::new(), provider());
    let nowhere = folder.0.join("mx0.sock").display().to_string();
    // A socket without a listener, as a killed daemon leaves it.
    drop(UnixListener::bind(folder.0.join("dead.sock")).unwrap());
    let dead = folder.0.join("dead.sock").display().to_string();
    for core in cores() {
        let info = |boards: &str| command("fi_info", &provider, core.as_deref(), boards);
        assert_reason(
            &run(info(&nowhere).args(["-p", "causeway"])),
            &["mx0.sock", "start causewayd"],
        );
        let dead = run(info(&dead).env("FI_PROVIDER", "causeway"));
        assert_reason(&dead, &["dead.sock", "start causewayd", "CAUSEWAY_MX"]);
        assert_reason(&run(info("").args(["-p", "causeway"])), &["port of kind mx"]);
        let warned = run(info("").env("FI_LOG_LEVEL", "warn").args(["-t", "FI_EP_RDM"]));
        assert!(warned.err.contains("port of kind mx"), "{warned:?}");
        // No output if other providers are requested.
        let others = run(&mut info(&nowhere));
        assert!(!others.err.contains("causeway"), "{others:?}");
    }
}

#[test]
fn provider_reports_a_nic_without_permission() {
    if !is_installed("fi_info") || !is_root() {
        return;
    }
    let (host, provider) = (Host::new(&["a"]), provider());
    let socket = host.dir.0.join("a");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&socket, mode).unwrap();
    let mut info = command("fi_info", &provider, None, &host.sockets(&["a"]));
    let denied = run(info.args(["-p", "causeway"]).uid(65534).gid(65534));
    assert_reason(&denied, &["/a: permission denied", "socket_mode"]);
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:\t0\t0\t"))
}

/// Runs a program of `tests/c`.
fn run_program(program: &Folder, argument: &str, core: Option<&std::path::Path>, boards: &str) {
    let (program, provider) = (program.0.join("program"), provider());
    let mut program = command(program.to_str().unwrap(), &provider, core, boards);
    let output = run(program.arg(argument));
    assert!(output.good && output.out == "ok\n", "{core:?} {output:?}");
}

#[test]
fn provider_objects_are_accepted_by_the_core() {
    let (host, Some(program)) = (Host::new(&["a"]), compile("objects.c")) else { return };
    for core in cores() {
        run_program(&program, "", core.as_deref(), &host.sockets(&["a"]));
    }
}

#[test]
fn a_daemon_that_never_answers_holds_nobody_up_for_long() {
    let (folder, Some(program)) = (Folder::new(), compile("objects.c")) else { return };
    let sockets = ["mx0.sock", "mx1.sock", "mx2.sock"].map(|name| folder.0.join(name));
    let _listeners = sockets.each_ref().map(|path| UnixListener::bind(path).unwrap());
    let boards = sockets.map(|path| path.display().to_string()).join(":");
    run_program(&program, "slow", None, &boards);
}

/// Runs a program of `tests/c` on a NIC, with each libfabric.
fn assert_program(name: &str, arguments: &[&str]) {
    let (host, Some(program)) = (Host::new(&["a"]), compile(name)) else { return };
    for core in cores() {
        for argument in arguments {
            run_program(&program, argument, core.as_deref(), &host.sockets(&["a"]));
        }
    }
}

#[test]
fn messages_are_sent_and_received_by_all_calls_and_told_as_the_interface_says() {
    assert_program("messages.c", &[""]);
}

/// libfabric's own program: a server process and a client process.
#[test]
fn provider_passes_fi_pingpong_at_all_lengths() {
    if !is_installed("fi_pingpong") {
        return;
    }
    let (host, provider) = (Host::new(&["a"]), provider());
    for (core, mode) in cores().iter().flat_map(|core| [(core, "msg"), (core, "tagged")]) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let pingpong = |words: &[&str]| {
            let boards = host.sockets(&["a"]);
            let mut command = command("fi_pingpong", &provider, core.as_deref(), &boards);
            command
                .args(["-p", "causeway", "-e", "rdm", "-m", mode, "-c", "-I", "20", "-S", "all"]);
            command.args(words);
            command
        };
        drop(listener);
        std::thread::scope(|scope| {
            let server = scope.spawn(|| run(&mut pingpong(&["-B", &port])));
            // The server may not listen yet.
            let ask = || run(&mut pingpong(&["-P", &port, "127.0.0.1"]));
            let asked = std::iter::repeat_with(ask)
                .take(50)
                .inspect(|_| std::thread::sleep(std::time::Duration::from_millis(100)))
                .find(|output| output.good || server.is_finished());
            let (served, asked) = (server.join().unwrap(), asked.expect("the server is there"));
            for output in [served, asked] {
                // A row for each length.
                let rows = output.out.lines().filter(|line| line.contains("=20")).count();
                assert!(output.good && rows >= 40, "{core:?} {mode} {rows} {output:?}");
            }
        });
    }
}

#[test]
fn provider_finds_an_endpoint_by_its_service() {
    assert_program("pairs.c", &["service"]);
}

#[test]
fn provider_delivers_injected_messages_before_it_closes() {
    assert_program("pairs.c", &["close"]);
}

#[test]
fn provider_sends_the_first_message_without_more_calls() {
    assert_program("pairs.c", &["first"]);
}

#[test]
fn provider_keeps_the_order_of_messages_by_two_numbers_of_one_endpoint() {
    assert_program("pairs.c", &["twice"]);
}

#[test]
fn memory_is_reached_where_it_was_granted_and_atomic_operations_do_as_a_model_does() {
    assert_program("memory.c", &[""]);
}

#[test]
fn provider_throttles_peers_without_loss() {
    assert_program("greedy.c", &[""]);
}

#[test]
fn provider_wakes_sleepers_by_messages_and_threads() {
    assert_program("waits.c", &[""]);
}

#[test]
fn provider_progresses_automatically_on_request() {
    assert_program("waits.c", &["auto"]);
}

#[test]
fn provider_wakes_a_sleeper_for_a_deferred_message() {
    assert_program("waits.c", &["deferred"]);
}

#[test]
fn provider_threads_of_two_queues_do_not_depend_on_each_other() {
    assert_program("waits.c", &["queues", "channels"]);
}

#[test]
fn provider_closes_a_thousand_endpoints_without_leaks() {
    assert_program("ends.c", &["thousand"]);
}

#[test]
fn provider_fails_operations_within_two_seconds_of_a_kill() {
    assert_program("ends.c", &["killed"]);
}

#[test]
fn children_have_nothing_of_their_parents() {
    assert_program("ends.c", &["children"]);
}

/// Returns the values of a counter in tables, endpoint by endpoint.
fn counted(tables: &str, name: &str) -> Vec<u64> {
    let rows = tables.lines().filter_map(|line| line.trim().split_once(' '));
    let values = rows.filter(|(of, _)| *of == name).map(|(_, value)| value.trim());
    values.map(|value| value.parse().unwrap()).collect()
}

/// The counters of both endpoints of `counters.c`.
const COUNTED: [(&str, [u64; 2]); 20] = [
    ("sent", [13, 0]),
    ("sent_bytes", [7 * 10 + 3 * 50_000 + 2 * 5 + 6, 0]),
    ("sent_long", [3, 0]),
    ("received", [0, 13]),
    ("received_bytes", [0, 7 * 10 + 3 * 50_000 + 2 * 5 + 4]),
    ("received_long", [0, 3]),
    ("reads", [5 + 3, 0]),
    ("read_bytes", [5000 + 24, 0]),
    ("writes", [4 + 6, 0]),
    ("written_bytes", [400 + 48, 0]),
    ("atomics", [6 + 3, 0]),
    ("remote_reads", [0, 5 + 3]),
    ("remote_read_bytes", [0, 5000 + 24]),
    ("remote_writes", [0, 4 + 6]),
    ("remote_written_bytes", [0, 400 + 48]),
    ("remote_atomics", [0, 6 + 3]),
    ("unexpected", [0, 2]),
    ("cancelled", [0, 1]),
    ("truncated", [0, 1]),
    ("failed", [1, 0]),
];

#[test]
fn provider_writes_counters_at_close() {
    let (host, Some(program)) = (Host::new(&["a"]), compile("counters.c")) else { return };
    let (provider, path) = (provider(), program.0.join("program"));
    let run_with = |name: &str, value: &str| {
        let mut command = command(path.to_str().unwrap(), &provider, None, &host.sockets(&["a"]));
        let output = run(command.env(name, value));
        assert!(output.good && output.out == "ok\n", "{output:?}");
        output.err
    };
    let output = run_with("FI_CAUSEWAY_COUNTERS", "stderr");
    for (name, values) in COUNTED {
        assert_eq!(counted(&output, name), values, "{name} {output}");
    }
    // Completions are reported for these only: 10 sends that are not injected and 19 calls; 13
    // receives and a cancelled receive.
    assert_eq!(counted(&output, "completions"), [29, 14], "{output}");
    let prefix = program.0.join("counted");
    let nothing = run_with("FI_CAUSEWAY_COUNTERS", prefix.to_str().unwrap());
    assert_eq!(nothing, "");
    let files = program.0.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.to_string_lossy().contains("counted.")).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    assert_eq!(counted(&std::fs::read_to_string(file).unwrap(), "sent"), [13, 0]);
    let log = run_with("FI_LOG_LEVEL", "info");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("was open for")).collect();
    let [first, second] = lines[..] else { panic!("{log}") };
    assert!(first.contains("<info>") && first.contains(" sent 13 "), "{first}");
    assert!(second.contains(" received 13 ") && !second.contains(" sent "), "{second}");
    assert!(!run_with("FI_LOG_LEVEL", "warn").contains("was open for"));
    let nowhere = run_with("FI_CAUSEWAY_COUNTERS", "/nonexistent/x");
    assert!(nowhere.contains("<warn> FI_CAUSEWAY_COUNTERS: /nonexistent/x."), "{nowhere}");
}

#[test]
fn the_library_exports_one_function_and_stays_where_it_was_loaded() {
    let provider = provider();
    let path = provider.0.join("libcauseway-fi.so");
    let symbols = run(std::process::Command::new("nm").args(["-D", "--defined-only"]).arg(&path));
    let names: Vec<&str> =
        symbols.out.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(names, ["fi_prov_ini"]);
    let dynamic = run(std::process::Command::new("readelf").arg("-d").arg(&path)).out;
    assert!(dynamic.contains("soname: [libcauseway-fi.so]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE") && !dynamic.contains("libfabric.so"), "{dynamic}");
}

#[test]
fn provider_is_found_where_it_is_installed() {
    let (host, provider, prefix) = (Host::new(&["a"]), provider(), Folder::new());
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let script = root.join("scripts/install-libfabric.sh");
    let install = |from: &Folder| {
        run(std::process::Command::new("sh").arg(&script).args([&prefix.0, &from.0]))
    };
    let nothing = install(&prefix);
    assert!(!nothing.good && nothing.err.contains("cargo build"), "{nothing:?}");
    let installed = install(&provider);
    assert!(installed.good, "{installed:?}");
    let page = std::fs::read_to_string(prefix.0.join("share/man/man7/fi_causeway.7")).unwrap();
    assert!(page.starts_with(".TH FI_CAUSEWAY 7"), "{page}");
    if is_installed("fi_info") {
        let mut info = command("fi_info", &provider, None, &host.sockets(&["a"]));
        let info = run(info
            .env("FI_PROVIDER_PATH", prefix.0.join("lib/libfabric"))
            .args(["-p", "causeway"]));
        assert!(info.good && info.out.contains("domain: a:0"), "{info:?}");
    }
}
