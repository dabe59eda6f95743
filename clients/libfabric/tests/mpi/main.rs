//! MPI, unmodified, over the provider: Debian's Open MPI, those that `scripts/mpi.sh` got, and others
//! whose folders of programs `CAUSEWAY_MPI` names. Programs are ours and know nothing of Causeway.

#[path = "../provider/common.rs"]
#[allow(dead_code, reason = "the other tests of this crate use the rest")]
mod common;
mod hpcc;
mod library;
mod netpipe;
mod slurm;
#[path = "../../../myriexpress/tests/library/wire.rs"]
mod wire;

use std::time::Instant;

use common::{Host, provider};
use library::{Library, all};

/// The boards of one host.
fn here(host: &Host) -> Vec<String> {
    vec![host.sockets(&["a"])]
}

/// Runs a program, which says that all is well.
fn runs(mpi: &Library, program: &str, ranks: usize, boards: &[String]) {
    let said = mpi.run(program, ranks, boards, &provider());
    assert!(said.good && said.out.lines().any(|line| line == "ok"), "{mpi:?} {program} {said:?}");
}

fn on_one_host(program: &str) {
    let host = Host::new(&["a"]);
    for mpi in all() {
        for ranks in [2, 4] {
            runs(&mpi, program, ranks, &here(&host));
        }
    }
}

#[test]
fn messages_of_all_lengths_arrive_whole_in_order_and_as_they_are_looked_for() {
    on_one_host("messages.c");
}

#[test]
fn messages_arrive_whichever_way_they_are_sent_waited_for_and_laid_out() {
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
fn collective_operations_of_uneven_parts_overlap_and_have_operators_of_their_own() {
    on_one_host("together.c");
}

#[test]
fn memory_is_exposed_to_some_and_for_a_time() {
    on_one_host("windows.c");
}

#[test]
fn computations_come_to_what_is_known_of_their_results() {
    on_one_host("kernels.c");
}

#[test]
fn several_threads_of_a_rank_call_at_a_time() {
    on_one_host("threads.c");
}

/// What ranks of two hosts run, and how many of them.
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

/// Ranks of two hosts, in turn, whose daemons have interfaces that are each other's far end.
fn two_hosts() {
    // What starts the ranks talks to them by the loopback interface.
    wire::ip("link set lo up");
    for bypass in [false, true] {
        let (one, two) = (Host::on("near", "a", bypass), Host::on("far", "b", bypass));
        let boards = [one.sockets(&["a"]), two.sockets(&["b"])];
        for mpi in all() {
            for (program, ranks) in PROGRAMS {
                runs(&mpi, program, ranks, &boards);
            }
        }
    }
}

#[test]
fn ranks_of_two_hosts_are_as_those_of_one() {
    wire::with_wire("ranks_of_two_hosts_are_as_those_of_one", two_hosts);
}

/// The sum of what tables say of a name.
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
        let (said, tables) = mpi.run_counted("threads.c", 2, &here(&host), &provider());
        assert!(said.good, "{mpi:?} {said:?}");
        assert_eq!(tables.len(), 2, "{mpi:?} a file of each rank");
        let all = |name| sum(&tables, name);
        assert!(all("sent") > 100 && all("completions") > 100, "{mpi:?} {tables:?}");
        assert_eq!(all("sent"), all("received"), "{mpi:?} {tables:?}");
        assert_eq!(all("sent_bytes"), all("received_bytes"), "{mpi:?} {tables:?}");
        assert_eq!(all("failed"), 0, "{mpi:?} {tables:?}");
    }
}

/// One of two ranks kills itself; the other says when it was told.
fn tells_of_a_killed_rank(program: &str, boards: &[String]) {
    for mpi in all().iter().filter(|mpi| mpi.lets_ranks_die()) {
        let since = Instant::now();
        let said = mpi.run_on(program, 2, boards, &provider());
        // It says how long it took by itself: starting and ending take their time too.
        let told = said.out.lines().chain(said.err.lines());
        let told: Vec<&str> = told.filter(|line| line.starts_with("told after ")).collect();
        let [line] = told[..] else { panic!("{mpi:?} after {:?}: {said:?}", since.elapsed()) };
        let ms: u64 = line.split(' ').nth(2).unwrap().parse().unwrap();
        assert!(ms < 2000, "{mpi:?} {line}");
    }
}

#[test]
fn who_waits_for_a_rank_that_was_killed_is_told_within_two_seconds() {
    let host = Host::new(&["a"]);
    tells_of_a_killed_rank("killed.c", &here(&host));
}

#[test]
fn who_sends_to_a_rank_of_another_host_that_was_killed_is_told_within_two_seconds() {
    let name = "who_sends_to_a_rank_of_another_host_that_was_killed_is_told_within_two_seconds";
    wire::with_wire(name, || {
        wire::ip("link set lo up");
        for bypass in [false, true] {
            let (one, two) = (Host::on("near", "a", bypass), Host::on("far", "b", bypass));
            let boards = [one.sockets(&["a"]), two.sockets(&["b"])];
            for program in ["killed.c", "unwanted.c"] {
                tells_of_a_killed_rank(program, &boards);
            }
        }
    });
}

#[test]
fn who_sends_a_few_bytes_to_a_rank_that_was_killed_hears_of_it_however_early_they_were_sent() {
    let name =
        "who_sends_a_few_bytes_to_a_rank_that_was_killed_hears_of_it_however_early_they_were_sent";
    wire::with_wire(name, || {
        wire::ip("link set lo up");
        // The daemon would know that nobody is there, and say so before anything is sent.
        let (one, two) = (Host::on("near", "a", true), Host::on("far", "b", true));
        let boards = [one.sockets(&["a"]), two.sockets(&["b"])];
        for mpi in all().iter().filter(|mpi| mpi.lets_ranks_die()) {
            let said = mpi.run_on("lost.c", 2, &boards, &provider());
            // It may be known before that nobody is there.
            let heard = ["was told as sent did not arrive", "told after "];
            assert!(heard.iter().any(|text| said.err.contains(text)), "{mpi:?} {said:?}");
        }
    });
}

#[test]
fn without_a_daemon_another_way_is_taken_and_it_is_said_why() {
    for mpi in all() {
        let boards = ["/nonexistent/mx0.sock".to_owned()];
        let since = Instant::now();
        let said = mpi.run_over_any("collectives.c", 2, &boards, &provider());
        assert!(said.good && said.out.contains("ok"), "{mpi:?} {:?} {said:?}", since.elapsed());
        let why = "/nonexistent/mx0.sock: the daemon does not answer: start causewayd";
        assert!(said.err.contains(why) || said.out.contains(why), "{mpi:?} {said:?}");
    }
}
