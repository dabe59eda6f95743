//! Unmodified MPI over the provider: Debian's Open MPI, the libraries that `scripts/mpi.sh`
//! installed, and others with program directories in `CAUSEWAY_MPI`. The programs of `tests/mpi`
//! know nothing of Causeway.

#[path = "../provider/common.rs"]
#[allow(dead_code, reason = "the other tests of this crate use the rest")]
mod common;
mod front;
mod hpcc;
mod library;
mod netpipe;
mod slurm;
#[path = "../../../myriexpress/tests/library/wire.rs"]
mod wire;

use std::time::Instant;

use common::{Host, provider};
use library::{Library, all};

/// Returns the NICs of a host.
fn here(host: &Host) -> Vec<String> {
    vec![host.sockets(&["a"])]
}

/// Runs a program, which prints `ok` on success.
fn assert_ok(mpi: &Library, program: &str, ranks: usize, boards: &[String]) {
    let output = mpi.run(program, ranks, boards, &provider());
    assert!(
        output.good && output.out.lines().any(|line| line == "ok"),
        "{mpi:?} {program} {output:?}"
    );
}

fn on_one_host(program: &str) {
    let host = Host::new(&["a"]);
    for mpi in all() {
        for ranks in [2, 4] {
            assert_ok(&mpi, program, ranks, &here(&host));
        }
    }
}

#[test]
fn messages_of_all_lengths_arrive_whole_in_order_and_as_they_are_looked_for() {
    on_one_host("messages.c");
}

#[test]
fn mpi_messages_arrive_in_all_modes_and_layouts() {
    on_one_host("modes.c");
}

#[test]
fn what_is_sent_ahead_of_a_barrier_does_not_hold_it_up_however_much_it_is() {
    on_one_host("ahead.c");
}

#[test]
fn collective_operations_come_to_what_each_rank_works_out() {
    on_one_host("collectives.c");
}

#[test]
fn memory_of_others_is_written_read_added_to_and_swapped() {
    on_one_host("memory.c");
}

#[test]
fn mpi_collectives_with_uneven_parts_and_user_operators_overlap() {
    on_one_host("together.c");
}

#[test]
fn mpi_windows_expose_memory_to_a_group_for_an_epoch() {
    on_one_host("windows.c");
}

#[test]
fn mpi_kernels_compute_known_results() {
    on_one_host("kernels.c");
}

#[test]
fn several_threads_of_a_rank_call_at_a_time() {
    on_one_host("threads.c");
}

/// The programs for ranks of two hosts, and the number of ranks.
const PROGRAMS: [(&str, usize); 9] = [
    ("ahead.c", 2),
    ("held.c", 2),
    ("messages.c", 2),
    ("modes.c", 2),
    ("collectives.c", 4),
    ("together.c", 4),
    ("memory.c", 4),
    ("windows.c", 2),
    ("kernels.c", 4),
];

/// Runs ranks of two hosts in turn. The interfaces of the daemons are connected to each other.
fn two_hosts() {
    // The launcher uses the loopback interface.
    wire::ip("link set lo up");
    for bypass in [false, true] {
        let (one, two) = (Host::on("near", "a", bypass), Host::on("far", "b", bypass));
        let boards = [one.sockets(&["a"]), two.sockets(&["b"])];
        for mpi in all() {
            for (program, ranks) in PROGRAMS {
                assert_ok(&mpi, program, ranks, &boards);
            }
        }
    }
}

#[test]
fn ranks_of_two_hosts_are_as_those_of_one() {
    wire::with_wire("ranks_of_two_hosts_are_as_those_of_one", two_hosts);
}

/// Returns the sum of a counter in tables.
fn sum(tables: &[String], name: &str) -> u64 {
    let rows = tables.iter().flat_map(|table| table.lines());
    let rows = rows.filter_map(|line| line.trim().split_once(' '));
    let values = rows.filter(|(of, _)| *of == name).map(|(_, value)| value.trim());
    values.map(|value| value.parse::<u64>().unwrap()).sum()
}

#[test]
fn what_ranks_sent_is_what_ranks_received_by_their_counters() {
    let host = Host::new(&["a"]);
    for mpi in all() {
        let (output, tables) = mpi.run_counted("threads.c", 2, &here(&host), &provider());
        assert!(output.good, "{mpi:?} {output:?}");
        assert_eq!(tables.len(), 2, "{mpi:?} a file of each rank");
        let all = |name| sum(&tables, name);
        assert!(all("sent") > 100 && all("completions") > 100, "{mpi:?} {tables:?}");
        assert_eq!(all("sent"), all("received"), "{mpi:?} {tables:?}");
        assert_eq!(all("sent_bytes"), all("received_bytes"), "{mpi:?} {tables:?}");
        assert_eq!(all("failed"), 0, "{mpi:?} {tables:?}");
    }
}

/// Runs two ranks of which one kills itself; checks when the other gets the error.
fn assert_killed_rank_is_reported(program: &str, boards: &[String]) {
    for mpi in all().iter().filter(|mpi| mpi.lets_ranks_die()) {
        let since = Instant::now();
        let output = mpi.run_on(program, 2, boards, &provider());
        // The rank measures the time itself, without the start and the end of the job.
        let told = output.out.lines().chain(output.err.lines());
        let told: Vec<&str> = told.filter(|line| line.starts_with("told after ")).collect();
        let [line] = told[..] else { panic!("{mpi:?} after {:?}: {output:?}", since.elapsed()) };
        let ms: u64 = line.split(' ').nth(2).unwrap().parse().unwrap();
        assert!(ms < 2000, "{mpi:?} {line}");
    }
}

#[test]
fn mpi_receive_from_a_killed_rank_fails_within_two_seconds() {
    let host = Host::new(&["a"]);
    assert_killed_rank_is_reported("killed.c", &here(&host));
}

#[test]
fn mpi_send_to_a_killed_rank_fails_within_two_seconds() {
    let name = "mpi_send_to_a_killed_rank_fails_within_two_seconds";
    wire::with_wire(name, || {
        wire::ip("link set lo up");
        for bypass in [false, true] {
            let (one, two) = (Host::on("near", "a", bypass), Host::on("far", "b", bypass));
            let boards = [one.sockets(&["a"]), two.sockets(&["b"])];
            for program in ["killed.c", "unwanted.c"] {
                assert_killed_rank_is_reported(program, &boards);
            }
        }
    });
}

#[test]
fn mpi_small_message_to_a_killed_rank_is_reported_as_lost() {
    let name = "mpi_small_message_to_a_killed_rank_is_reported_as_lost";
    wire::with_wire(name, || {
        wire::ip("link set lo up");
        // A daemon would know that the peer is gone, and report it before the send.
        let (one, two) = (Host::on("near", "a", true), Host::on("far", "b", true));
        let boards = [one.sockets(&["a"]), two.sockets(&["b"])];
        for mpi in all().iter().filter(|mpi| mpi.lets_ranks_die()) {
            let output = mpi.run_on("lost.c", 2, &boards, &provider());
            // The loss of the peer may be known before the send.
            let heard = ["was reported as sent was lost", "told after "];
            assert!(heard.iter().any(|text| output.err.contains(text)), "{mpi:?} {output:?}");
        }
    });
}

#[test]
fn mpi_without_a_daemon_uses_another_provider() {
    for mpi in all() {
        let boards = ["/nonexistent/mx0.sock".to_owned()];
        let since = Instant::now();
        let output = mpi.run_over_any("collectives.c", 2, &boards, &provider());
        assert!(
            output.good && output.out.contains("ok"),
            "{mpi:?} {:?} {output:?}",
            since.elapsed()
        );
        let why = "/nonexistent/mx0.sock: the daemon does not answer: start causewayd";
        assert!(output.err.contains(why) || output.out.contains(why), "{mpi:?} {output:?}");
    }
}
