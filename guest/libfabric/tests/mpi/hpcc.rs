//! HPCC, as this system has it: seven programs that check their own results, over the provider.

use std::path::Path;

use crate::common::{Folder, Host, provider};
use crate::library::system;

const HPCC: &str = "/usr/bin/hpcc";
/// Half of this side is transposed; all of it is solved.
const SIDE: usize = 1000;

/// What it is asked: a value or more on each line, and a word on what they are.
fn question([rows, columns]: [usize; 2]) -> String {
    let side = SIDE.to_string();
    let (rows, columns) = (rows.to_string(), columns.to_string());
    let lines: &[(&str, &str)] = &[
        ("HPCC over Causeway", ""),
        ("one small problem", ""),
        ("solved.out", "unused: the answer has a file of its own"),
        ("8", "into that file"),
        ("1", "one side"),
        (&side, "of the matrix"),
        ("1", "one side"),
        ("80", "of a block"),
        ("0", "ranks row by row"),
        ("1", "one grid of ranks"),
        (&rows, "rows"),
        (&columns, "columns"),
        ("16.0", "what a residual may come to"),
        ("1", "one way to factor a panel"),
        ("2", "from the right"),
        ("1", "one end of recursion"),
        ("4", "columns"),
        ("1", "one way to part a panel"),
        ("2", "in halves"),
        ("1", "one way to recurse"),
        ("1", "Crout's"),
        ("1", "one way to broadcast"),
        ("1", "a ring, changed"),
        ("1", "one depth of looking ahead"),
        ("1", "one panel"),
        ("2", "rows are swapped in a mixed way"),
        ("64", "from so many columns on"),
        ("0", "L1 transposed"),
        ("0", "U transposed"),
        ("1", "rows are equilibrated"),
        ("8", "doubles are aligned to"),
        ("", "from here on: the transposition"),
        ("0", "further sides"),
        ("", "none"),
        ("0", "further blocks"),
        ("", "none"),
    ];
    lines.iter().map(|(value, word)| format!("{value:<24} {word}\n")).collect()
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
