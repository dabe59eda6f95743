//! The `[dispatch]` table as options of the fabric.
//!
//! Without `dispatchers` there is one for each CPU in `cpus`, of which the model accepts at most
//! 64. Without both there is one for each two CPUs of the process: at least 1, at most
//! [`DISPATCHERS_DEFAULT_MAX`] (8). Times are us in the file and ns in the options.
//!
//! The values were checked by the table of the model; this module checks nothing, reads no file and
//! starts no thread. `config::read` calls [`options()`], `config::print` the inverse [`settings`].
//! `POST /v1/apply` reads the table and ignores it: a change takes effect with the next start.

use causeway_fabric::{Options, PollConfig};
use causeway_model::settings::{CpuList, DispatchSettings};

/// Most dispatchers that are started where neither their number nor their CPUs are configured.
/// Dispatchers share no work within a group; an operator with more busy groups configures the
/// number.
const DISPATCHERS_DEFAULT_MAX: usize = 8;

/// Returns the options of the fabric.
pub(super) fn options(settings: DispatchSettings) -> Options {
    let DispatchSettings { dispatchers, cpus, mode, upper, lower, period_us, spin_us } = settings;
    let nanoseconds = |us: u64| us.saturating_mul(1000);
    let (period_ns, spin_ns) = (nanoseconds(period_us), nanoseconds(spin_us));
    let poll_config = PollConfig { policy: mode, upper, lower, period_ns, spin_ns };
    let cpus = cpus.map(|CpuList(cpus)| cpus).unwrap_or_default();
    // As many as the listed CPUs, else by the CPUs of the process.
    let dispatchers = dispatchers.unwrap_or_else(|| match cpus.len() {
        0 => dispatchers_default(),
        bound => bound,
    });
    Options { dispatchers, cpus, poll_config }
}

/// Returns the settings that give these options.
pub(super) fn settings(options: &Options) -> DispatchSettings {
    let Options { dispatchers, ref cpus, poll_config } = *options;
    let PollConfig { policy, upper, lower, period_ns, spin_ns } = poll_config;
    DispatchSettings {
        dispatchers: Some(dispatchers),
        cpus: (!cpus.is_empty()).then(|| CpuList(cpus.clone())),
        mode: policy,
        upper,
        lower,
        period_us: period_ns / 1000,
        spin_us: spin_ns / 1000,
    }
}

/// Returns the default number of dispatchers: half of the CPUs that this process may run on, so
/// that guests have the other half, at most [`DISPATCHERS_DEFAULT_MAX`].
fn dispatchers_default() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (cpus / 2).clamp(1, DISPATCHERS_DEFAULT_MAX)
}
