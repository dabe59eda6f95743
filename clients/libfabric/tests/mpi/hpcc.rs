//! HPCC, as this system has it: seven programs that check their own results, over the provider.

use std::path::Path;

use crate::common::{Folder, Host, provider};
use crate::library::system;

const HPCC: &str = "/usr/bin/hpcc";
/// Half of this side is transposed; all of it is solved.
const SIDE: usize = 1000;

/// What it is asked: a value or more on each line, and a word on what they are. As in the bench.
const ASKED: &str = include_str!("../../../../bench/src/peers/hpccinf.txt");

fn question([rows, columns]: [usize; 2]) -> String {
    let all = [("SIDE", SIDE), ("BLOCK", 80), ("ROWS", rows), ("COLUMNS", columns)];
    all.iter().fold(ASKED.to_owned(), |asked, (name, is)| {
        assert_eq!(asked.matches(name).count(), 1, "{name}");
        asked.replace(name, &is.to_string())
    })
}

/// A figure of its summary.
fn figure(answer: &str, name: &str) -> f64 {
    let found = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let found = found.unwrap_or_else(|| panic!("no {name} in\n{answer}"));
    found.trim().parse().unwrap_or_else(|_| panic!("{name} is {found}"))
}

/// Every check of it passed, and what was measured was measured.
fn check(answer: &str) {
    assert_eq!(figure(answer, "Success"), 1.0, "{answer}");
    assert!(!answer.contains("FAILED"), "{answer}");
    // A transposition has a line by the processor's clock too, but only where that clock moved.
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
    // Ranks never sleep: where they have no core each, most of the time goes by in turns.
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    for ranks in [2, 4].into_iter().filter(|ranks| *ranks == 2 || *ranks <= cores) {
        let folder = Folder::new();
        std::fs::write(folder.0.join("hpccinf.txt"), question([ranks / 2, 2])).unwrap();
        let said = mpi.run_ready(Path::new(HPCC), &folder, ranks, &boards, &provider());
        assert!(said.good, "{ranks} ranks: {said:?}");
        check(&std::fs::read_to_string(folder.0.join("hpccoutf.txt")).unwrap());
    }
}
