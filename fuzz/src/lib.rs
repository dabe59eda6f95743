//! Fuzz targets for every untrusted input of Causeway.
//!
//! A [`Target`] interprets arbitrary bytes as a scenario: a series of actions of a hostile guest,
//! frontend, peer or operator. It panics if an invariant is violated: the code under test crashes,
//! memory outside the grant changes, counters disagree, or the output differs from a simple
//! reference model. The same targets run under libFuzzer (`make fuzz`), as tests over the committed
//! corpora (`tests/replay.rs`), and from the command line (`causeway-fuzz replay`).
//!
//! Limits: the targets run in one process without guests, networks or a daemon process; timing and
//! concurrency between processes are tested elsewhere.

mod cluster;
#[path = "../../crates/mlx5/tests/function/driver.rs"]
#[allow(dead_code, missing_docs, reason = "shared with the tests of the function")]
mod driver;
mod endpoint;
mod entries;
mod exchange;
mod fi;
mod frontend;
mod guest_memory;
mod holder;
mod input;
#[path = "../../crates/mlx5/tests/ethernet/interface.rs"]
#[allow(dead_code, missing_docs, reason = "shared with the tests of the function")]
mod interface;
mod mlx5;
#[path = "../../crates/daemon/tests/common/model.rs"]
mod model;
mod multiplex;
mod mxoe;
mod offload;
mod reached;
mod ring;
mod sessions;
mod stage;
mod text;
mod tunnel;
mod unfinished;
mod vfio_user;
mod vmm_socket;
mod vnet;

pub use input::Input;

/// A fuzz target: an untrusted input and the scenario that exercises it.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name, which is also the name of the folders under `corpus/` and `regressions/`.
    pub name: &'static str,
    /// The longest useful input, in bytes.
    pub bytes_max: usize,
    /// Runs one input; panics if an invariant is violated.
    pub run: fn(&[u8]),
    /// Returns initial inputs that reach deep code paths.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "split", bytes_max: 1024, run: ring::split, seeds: ring::split_seeds },
    Target { name: "packed", bytes_max: 1024, run: ring::packed, seeds: ring::packed_seeds },
    Target { name: "indirect", bytes_max: 1024, run: ring::indirect, seeds: ring::indirect_seeds },
    Target { name: "offload", bytes_max: 512, run: offload::run, seeds: offload::seeds },
    Target { name: "exchange", bytes_max: 320, run: exchange::run, seeds: exchange::seeds },
    Target { name: "frontend", bytes_max: 1024, run: frontend::run, seeds: frontend::seeds },
    Target { name: "vfio_user", bytes_max: 1024, run: vfio_user::run, seeds: vfio_user::seeds },
    Target { name: "frames", bytes_max: 1024, run: stage::frames, seeds: stage::frames_seeds },
    Target { name: "packets", bytes_max: 1024, run: stage::packets, seeds: stage::packets_seeds },
    Target { name: "record", bytes_max: 512, run: holder::record, seeds: holder::record_seeds },
    Target { name: "holder", bytes_max: 1024, run: holder::control, seeds: holder::control_seeds },
    Target { name: "config", bytes_max: 4096, run: text::config, seeds: text::config_seeds },
    Target { name: "control", bytes_max: 4096, run: text::control, seeds: text::control_seeds },
    Target { name: "cluster", bytes_max: 2048, run: cluster::run, seeds: cluster::seeds },
    Target { name: "vnet_language", bytes_max: 1024, run: vnet::run, seeds: vnet::seeds },
    Target { name: "tunnel", bytes_max: 1024, run: tunnel::run, seeds: tunnel::seeds },
    Target { name: "multiplex", bytes_max: 1024, run: multiplex::run, seeds: multiplex::seeds },
    Target { name: "roce", bytes_max: 160, run: tunnel::roce, seeds: tunnel::roce_seeds },
    Target { name: "vxlan", bytes_max: 64, run: tunnel::vxlan, seeds: tunnel::vxlan_seeds },
    Target { name: "unfinished", bytes_max: 512, run: unfinished::run, seeds: unfinished::seeds },
    Target { name: "mxoe", bytes_max: 256, run: mxoe::packet, seeds: mxoe::packet_seeds },
    Target { name: "board", bytes_max: 1024, run: mxoe::board, seeds: mxoe::board_seeds },
    Target { name: "entry", bytes_max: 96, run: entries::entry, seeds: entries::entry_seeds },
    Target { name: "word", bytes_max: 256, run: entries::word, seeds: entries::word_seeds },
    Target { name: "stream", bytes_max: 512, run: tunnel::stream, seeds: tunnel::stream_seeds },
    Target {
        name: "vmm_socket",
        bytes_max: 512,
        run: vmm_socket::vmm_socket,
        seeds: vmm_socket::vmm_socket_seeds,
    },
    Target {
        name: "channel",
        bytes_max: 512,
        run: endpoint::channel,
        seeds: endpoint::channel_seeds,
    },
    Target {
        name: "matching",
        bytes_max: 512,
        run: endpoint::matching,
        seeds: endpoint::matching_seeds,
    },
    Target { name: "reached", bytes_max: 512, run: reached::run, seeds: reached::seeds },
    Target {
        name: "mlx5_commands",
        bytes_max: 1024,
        run: mlx5::commands,
        seeds: mlx5::commands_seeds,
    },
    Target { name: "mlx5_work", bytes_max: 1024, run: mlx5::work, seeds: mlx5::work_seeds },
    Target { name: "sessions", bytes_max: 1024, run: sessions::run, seeds: sessions::seeds },
    Target { name: "fi", bytes_max: 1024, run: fi::run, seeds: fi::seeds },
];

/// Returns the target called `name`.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Returns the names of all targets, separated by commas, for error messages.
pub fn names() -> String {
    TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ")
}
