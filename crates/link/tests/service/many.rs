//! The maximum number of links. Alone in its process, because it measures processor time.

use std::time::Duration;

use crate::hosts::{Host, bare};
use causeway_model::LinkKind;
use rustix::time::{ClockId, clock_gettime};

/// Returns the processor time of this process, independent of the machine's load.
fn busy() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn links_are_added_in_linear_time() {
    let host = Host::new();
    let add = |n: usize| {
        let remote = format!("127.1.{}.{}:21990", n / 250, n % 250 + 1);
        // A kind without timers: those of tunnels take time beside the additions.
        let ends = ("127.0.0.99:21990", remote.as_str(), 7);
        host.link(bare(&format!("l{n}"), "red", LinkKind::Vnet, ends)).unwrap();
    };
    let quarter = |from: usize| {
        let start = busy();
        (from..from + 250).for_each(add);
        busy() - start
    };
    let (first, last) = (quarter(0), [250, 500, 750].map(quarter)[2]);
    // About seven times as much if each addition took time for all existing links.
    assert!(last < 4 * first, "250 links took {first:?}, the last 250 of 1,000 {last:?}");
}
