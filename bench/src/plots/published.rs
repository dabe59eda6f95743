//! The plots of docs/performance.md, from the figures of its tables.
//!
//! The figures are copies of the tables, and change by hand with them. A test, and nothing
//! else, draws `docs/images/burst.svg` and `docs/images/messages.svg`; it fails if the files
//! differ, and writes them with `CAUSEWAY_UPDATE_DOCS` set.

use std::path::Path;

use crate::plot::{Plot, Point, Series};

const MACHINE: &str = "November 2026; three rounds, in a virtual machine with 2 cores that \
                       share a cache";

/// Returns a series of medians, or of ranges with their middle.
fn series(name: &str, points: &[(f64, f64, f64)]) -> Series {
    let point = |&(x, min, max): &(f64, f64, f64)| Point { x, min, y: (min + max) / 2.0, max };
    Series { name: name.into(), points: points.iter().map(point).collect() }
}

/// "Ethernet on one host", 64 B, split rings: Causeway's rates, and the peers' by the ratios.
fn burst() -> Plot {
    let ours = [(1.0, 7.8), (4.0, 14.0), (16.0, 19.0), (32.0, 21.0)];
    let of = |name: &str, ratios: [f64; 4]| {
        let rates = ours.iter().zip(ratios);
        let points: Vec<_> = rates.map(|(&(x, y), ratio)| (x, y / ratio, y / ratio)).collect();
        series(name, &points)
    };
    Plot {
        title: "64-byte frames between two ports, by the length of a burst".into(),
        x_name: "frames in a burst".into(),
        is_bytes: false,
        unit: "million frames a second".into(),
        more_is_better: true,
        conditions: vec![
            MACHINE.into(),
            "medians; split rings; DPDK's generator on one core, the switch on the other".into(),
        ],
        series: vec![
            of("Causeway", [1.0; 4]),
            of("testpmd", [1.0 / 1.16, 1.3, 1.8, 1.96]),
            of("OVS-DPDK", [1.0 / 1.09, 1.5, 2.0, 2.3]),
        ],
    }
}

/// "Messages on one host": the peers' times, relative to Causeway's.
fn messages() -> Plot {
    const SIZES: [f64; 4] = [8.0, 1024.0, 65_536.0, 1_048_576.0];
    let of = |name: &str, ranges: [(f64, f64); 4]| {
        let points: Vec<_> =
            SIZES.into_iter().zip(ranges).map(|(x, (min, max))| (x, min, max)).collect();
        series(name, &points)
    };
    Plot {
        title: "MX messages between two processes of one host: half a round trip".into(),
        x_name: "length of the message".into(),
        is_bytes: true,
        unit: "times Causeway's time".into(),
        more_is_better: false,
        conditions: vec![
            MACHINE.into(),
            "whiskers are the range over the rounds, markers its middle; both ends poll".into(),
        ],
        series: vec![
            of("Causeway (1)", [(1.0, 1.0); 4]),
            of("Open MPI", [(1.2, 1.3), (1.05, 1.3), (2.0, 2.1), (2.2, 2.3)]),
            of("UCX", [(1.2, 1.6), (1.25, 1.3), (1.0, 1.2), (1.5, 1.6)]),
        ],
    }
}

#[test]
fn plots_of_the_documents_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images");
    for (name, plot) in [("burst.svg", burst()), ("messages.svg", messages())] {
        let (path, svg) = (folder.join(name), plot.svg().unwrap());
        if std::env::var_os("CAUSEWAY_UPDATE_DOCS").is_some() {
            std::fs::write(&path, &svg).unwrap();
        }
        assert!(
            std::fs::read_to_string(&path).is_ok_and(|text| text == svg),
            "{} differs: run this test with CAUSEWAY_UPDATE_DOCS=1",
            path.display()
        );
    }
}
