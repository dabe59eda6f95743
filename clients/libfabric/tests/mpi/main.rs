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

use std::sync::OnceLock;
use std::time::Instant;

use common::{Folder, Host, Output, provider};
use library::{Library, all};

/// Returns the NICs of a host.
fn here(host: &Host) -> Vec<String> {
    vec![host.sockets(&["a"])]
}

/// The programs for ranks of one host, by the number of ranks. `ahead` takes more time than all others:
/// each pair of its ranks does the same.
const HERE: [(usize, &[&str]); 2] = [
    (2, &["messages", "modes", "collectives", "memory", "together", "windows", "kernels", "ahead"]),
    (4, &["messages", "modes", "collectives", "memory", "together", "windows", "kernels"]),
];

/// A job of several programs in turn, of which each prints its name on success.
struct Job {
    library: &'static str,
    ranks: usize,
    output: Output,
}

impl Job {
    fn run(
        mpi: &Library,
        suite: &Folder,
        programs: &[&str],
        ranks: usize,
        nics: &[String],
    ) -> Self {
        let output = mpi.run_suite(suite, programs, ranks, nics, &provider());
        Self { library: mpi.name(), ranks, output }
    }

    fn check(&self, program: &str) {
        let line = format!("ok {program}");
        let is_ok = self.output.good && self.output.out.lines().any(|found| found == line);
        let Self { library, ranks, output } = self;
        assert!(is_ok, "{program}, {library}, {ranks} ranks: {output:?}");
    }
}

/// Checks a program in the jobs of all libraries on one host, which run once for all tests.
fn on_one_host(program: &str) {
    static JOBS: OnceLock<Vec<Job>> = OnceLock::new();
    let jobs = JOBS.get_or_init(|| {
        let host = Host::new(&["a"]);
        let run = |mpi: &Library| {
            let suite = mpi.compile_suite();
            HERE.map(|(ranks, programs)| Job::run(mpi, &suite, programs, ranks, &here(&host)))
        };
        all().iter().flat_map(run).collect()
    });
    let has = |ranks| HERE.iter().any(|(of, all)| *of == ranks && all.contains(&program));
    jobs.iter().filter(|job| has(job.ranks)).for_each(|job| job.check(program));
}

#[test]
fn messages_of_all_lengths_arrive_whole_in_order_and_as_they_are_looked_for() {
    on_one_host("messages");
}

#[test]
fn mpi_messages_arrive_in_all_modes_and_layouts() {
    on_one_host("modes");
}

#[test]
fn what_is_sent_ahead_of_a_barrier_does_not_hold_it_up_however_much_it_is() {
    on_one_host("ahead");
}

#[test]
fn collective_operations_come_to_what_each_rank_works_out() {
    on_one_host("collectives");
}

#[test]
fn memory_of_others_is_written_read_added_to_and_swapped() {
    on_one_host("memory");
}

#[test]
fn mpi_collectives_with_uneven_parts_and_user_operators_overlap() {
    on_one_host("together");
}

#[test]
fn mpi_windows_expose_memory_to_a_group_for_an_epoch() {
    on_one_host("windows");
}

#[test]
fn mpi_kernels_compute_known_results() {
    on_one_host("kernels");
}

#[test]
fn several_threads_of_a_rank_call_at_a_time() {
    let host = Host::new(&["a"]);
    for mpi in all() {
        let (output, _) = mpi.run_counted("threads.c", 4, &here(&host), &provider());
        assert!(output.good && output.out.lines().any(|line| line == "ok"), "{mpi:?} {output:?}");
    }
}

/// The programs for ranks of two hosts, by the number of ranks.
const BETWEEN: [(usize, &[&str]); 2] = [
    (2, &["held", "messages", "modes", "windows", "ahead"]),
    (4, &["collectives", "together", "memory", "kernels"]),
];

/// Runs ranks of two hosts in turn. The interfaces of the daemons are connected to each other.
fn two_hosts() {
    // The launcher uses the loopback interface.
    wire::ip("link set lo up");
    let libraries: Vec<_> = all().into_iter().map(|mpi| (mpi.compile_suite(), mpi)).collect();
    for bypass in [false, true] {
        let (one, two) = (Host::on("near", "a", bypass), Host::on("far", "b", bypass));
        let boards = [one.sockets(&["a"]), two.sockets(&["b"])];
        for (suite, mpi) in &libraries {
            for (ranks, programs) in BETWEEN {
                let job = Job::run(mpi, suite, programs, ranks, &boards);
                programs.iter().for_each(|program| job.check(program));
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
        assert!(output.good && output.out.lines().any(|line| line == "ok"), "{mpi:?} {output:?}");
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
