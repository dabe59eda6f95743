//! HPCC as installed on this system: seven programs that check their own results, over the
//! provider.

use std::path::Path;

use crate::common::{Folder, Host, provider};
use crate::library::system;

const HPCC: &str = "/usr/bin/hpcc";
/// The order of the matrices: half of it is transposed, all of it is solved.
const SIDE: usize = 1000;

/// The input: a line with values and a comment each. The benchmark uses the same.
const ASKED: &str = include_str!("../../../../bench/src/peers/hpccinf.txt");

fn question([rows, columns]: [usize; 2]) -> String {
    let all = [("SIDE", SIDE), ("BLOCK", 80), ("ROWS", rows), ("COLUMNS", columns)];
    all.iter().fold(ASKED.to_owned(), |asked, (name, is)| {
        assert_eq!(asked.matches(name).count(), 1, "{name}");
        asked.replace(name, &is.to_string())
    })
}

/// Returns a value of the summary.
fn figure(answer: &str, name: &str) -> f64 {
    let found = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let found = found.unwrap_or_else(|| panic!("no {name} in\n{answer}"));
    found.trim().parse().unwrap_or_else(|_| panic!("{name} is {found}"))
}

/// Checks that every test passed, and that every measurement has a value.
fn check(answer: &str) {
    assert_eq!(figure(answer, "Success"), 1.0, "{answer}");
    assert!(!answer.contains("FAILED"), "{answer}");
    // A transposition also has a line for the processor time, but only if that clock advanced.
    let passed = |start: &str| {
        answer.lines().filter(|line| line.starts_with(start) && line.contains("PASSED")).count()
    };
    assert_eq!((passed("WALL"), passed("||Ax-b||")), (5, 1), "{answer}");
    for name in ["MPIRandomAccess_Errors", "MPIRandomAccess_LCG_Errors", "PTRANS_residual"] {
        assert_eq!(figure(answer, name), 0.0, "{name} in\n{answer}");
    }
    assert!(figure(answer, "MPIFFT_maxErr").abs() < 1e-12, "{answer}");
    for name in ["HPL_Tflops", "MPIFFT_Gflops", "MPIRandomAccess_GUPs"] {
        assert!(figure(answer, name) > 0.0, "{name} in\n{answer}");
    }
    for name in ["MinPingPongLatency_usec", "RandomlyOrderedRingLatency_usec"] {
        let us = figure(answer, name);
        assert!(us > 0.0 && us < 1e6, "{name} is {us}");
    }
    for name in ["MaxPingPongBandwidth_GBytes", "NaturallyOrderedRingBandwidth_GBytes"] {
        assert!(figure(answer, name) > 0.0, "{name} in\n{answer}");
    }
}

#[test]
fn hpcc_says_that_all_its_results_are_right() {
    let (Some(mpi), true) = (system(), Path::new(HPCC).exists()) else {
        eprintln!("{HPCC} is not installed (hpcc): nothing is tested");
        return;
    };
    let host = Host::new(&["a"]);
    let boards = [host.sockets(&["a"])];
    // Ranks never sleep: without a core each, they mostly wait for their turn.
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    for ranks in [2, 4].into_iter().filter(|ranks| *ranks == 2 || *ranks <= cores) {
        let folder = Folder::new();
        std::fs::write(folder.0.join("hpccinf.txt"), question([ranks / 2, 2])).unwrap();
        let output = mpi.run_ready(Path::new(HPCC), &folder, ranks, &boards, &provider());
        assert!(output.good, "{ranks} ranks: {output:?}");
        check(&std::fs::read_to_string(folder.0.join("hpccoutf.txt")).unwrap());
    }
}
