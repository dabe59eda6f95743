//! The `[dispatch]` table: number and placement of dispatchers, and their poll mode.
//!
//! By default, half of the CPUs that the process may use get a dispatcher, 1 to
//! [`DISPATCHERS_DEFAULT_MAX`]; with `cpus`, each listed CPU gets a dispatcher. Times are read in
//! microseconds and kept in nanoseconds. Ranges are those of `causeway_model::limits`; `lower`
//! above `upper` is a problem.
//!
//! The module does not check that a CPU exists (`config::environment` does), and binds no thread.
//! Changes need a restart of the daemon: `causeway apply` ignores the table. `config::read` calls
//! [`read`], `config::print` calls [`print()`], and [`causeway_fabric::Fabric::start`] uses the
//! result.

use std::fmt::Write as _;
use std::str::FromStr;

use causeway_fabric::{Options, PollConfig};
use causeway_model::PollPolicy;
use causeway_model::limits::{
    DISPATCHERS_MAX, PERIOD_US_MAX, PERIOD_US_MIN, RATE_MAX, SPIN_US_MAX,
};

use super::problem::Problems;
use super::section::Section;

pub(super) const KEYS: [&str; 7] =
    ["dispatchers", "cpus", "mode", "upper", "lower", "period_us", "spin_us"];
const MODES: [&str; 3] = ["adaptive", "guest-driven", "vmm-driven"];
/// Most dispatchers that are started by default. Dispatchers share no work within a group; an
/// operator with more busy groups configures the number.
const DISPATCHERS_DEFAULT_MAX: usize = 8;
/// Largest CPU number that is accepted; the kernel supports no more.
const CPU_MAX: usize = 8191;

/// CPUs in the kernel's list format: `2,4-7`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cpus(Vec<usize>);

impl FromStr for Cpus {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?}: expected CPU numbers and ranges, as \"2,4-7\"");
        let number = |part: &str| part.trim().parse::<usize>().ok().filter(|cpu| *cpu <= CPU_MAX);
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first).ok_or_else(wrong)?, number(last).ok_or_else(wrong)?);
            if first > last {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        let most = DISPATCHERS_MAX;
        if cpus.len() > most {
            return Err(format!("{text:?}: expected at most {most} CPUs, one for each dispatcher"));
        }
        Ok(Self(cpus))
    }
}

pub(super) fn read(section: &Section<'_, '_>, problems: &mut Problems) -> Options {
    let most = |limit: u64| u32::try_from(limit).unwrap_or(u32::MAX);
    let plain = PollConfig::default();
    let policy =
        section.word("mode", &MODES, problems).map_or(PollPolicy::Adaptive, |at| match at.value {
            "guest-driven" => PollPolicy::GuestDriven,
            "vmm-driven" => PollPolicy::VmmDriven,
            _ => PollPolicy::Adaptive,
        });
    let upper = section.integer("upper", 1..=RATE_MAX, problems);
    let lower = section.integer("lower", 0..=RATE_MAX, problems);
    let period = section.integer("period_us", most(PERIOD_US_MIN)..=most(PERIOD_US_MAX), problems);
    let spin = section.integer("spin_us", 0..=most(SPIN_US_MAX), problems);
    let nanoseconds = |us: u32| u64::from(us).saturating_mul(1000);
    let poll_config = PollConfig {
        policy,
        upper: upper.as_ref().map_or(plain.upper, |at| at.value),
        lower: lower.as_ref().map_or(plain.lower, |at| at.value),
        period_ns: period.map_or(plain.period_ns, |at| nanoseconds(at.value)),
        spin_ns: spin.map_or(plain.spin_ns, |at| nanoseconds(at.value)),
    };
    if poll_config.lower > poll_config.upper {
        let (at, key) = lower.map_or((section.span.clone(), "upper"), |at| (at.span, "lower"));
        let (lower, upper) = (poll_config.lower, poll_config.upper);
        let text =
            format!("key {key:?}: expected lower to be at most upper; found {lower} and {upper}");
        problems.add(at, text);
    }
    let cpus = section.parsed::<Cpus>("cpus", problems).map_or(Vec::new(), |at| at.value.0);
    let dispatchers = section.integer("dispatchers", 1..=most(DISPATCHERS_MAX as u64), problems);
    let dispatchers = dispatchers.and_then(|at| usize::try_from(at.value).ok());
    // As many as the listed CPUs, else by the CPUs of the process.
    let dispatchers = match cpus.len() {
        0 => dispatchers.unwrap_or_else(dispatchers_default),
        bound => dispatchers.unwrap_or(bound),
    };
    Options { dispatchers, cpus, poll_config }
}

/// Returns the default number of dispatchers: half of the CPUs that this process may run on, so
/// that guests have the other half, at most [`DISPATCHERS_DEFAULT_MAX`].
fn dispatchers_default() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (cpus / 2).clamp(1, DISPATCHERS_DEFAULT_MAX)
}

pub(super) fn print(out: &mut String, options: &Options) {
    let Options { dispatchers, cpus, poll_config } = options;
    let _ = writeln!(out, "\n[dispatch]\ndispatchers = {dispatchers}");
    if !cpus.is_empty() {
        let list: Vec<String> = cpus.iter().map(usize::to_string).collect();
        let _ = writeln!(out, "cpus = \"{}\"", list.join(","));
    }
    let mode = match poll_config.policy {
        PollPolicy::Adaptive => "adaptive",
        PollPolicy::GuestDriven => "guest-driven",
        PollPolicy::VmmDriven => "vmm-driven",
    };
    let (period_us, spin_us) = (poll_config.period_ns / 1000, poll_config.spin_ns / 1000);
    let _ = writeln!(
        out,
        "mode = \"{mode}\"\nupper = {}\nlower = {}",
        poll_config.upper, poll_config.lower
    );
    let _ = writeln!(out, "period_us = {period_us}\nspin_us = {spin_us}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_cpus_have_the_kernels_list_format() {
        assert_eq!("2,4-6".parse::<Cpus>().unwrap().0, [2, 4, 5, 6]);
        for wrong in ["", "a", "3-1", "1,", "9999", "0-99"] {
            assert!(wrong.parse::<Cpus>().is_err(), "{wrong}");
        }
    }
}
