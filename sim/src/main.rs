//! `causeway-sim`: plays random worlds and prints, for each world with a violation, its first
//! violation and the command that replays the world.
//!
//! The program plays the worlds of 1,000 seeds (`--seeds`, from `--first` on; `make sim` plays
//! 10,000), one after another in the main thread, by [`causeway_sim::play`] or, with `--boards`,
//! [`boards::play`]. A violation does not end the run: the exit status is 1 if any world had one.
//! Nothing outside of the process changes, except a temporary folder and loopback sockets of worlds
//! of NICs.

use std::process::ExitCode;

use causeway_sim::{PlayOptions, boards};
use clap::Parser;

/// Play random worlds of guests, each generated from one seed
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Number of worlds to play
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Seed of the first world
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Play only the world of this seed
    #[arg(long)]
    seed: Option<u64>,
    /// Play worlds of MX NICs instead of worlds of guests
    #[arg(long)]
    boards: bool,
    /// Print every event
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let (first, count) = match options.seed {
        Some(seed) => (seed, 1),
        None => (options.first, options.seeds),
    };
    let play_options = PlayOptions { print: options.trace, keep: false, descriptors: true };
    let (mut events, mut failed) = (0, 0);
    for seed in first..first.saturating_add(count) {
        let play = if options.boards { boards::play } else { causeway_sim::play };
        let outcome = play(seed, play_options);
        events += outcome.count;
        if let Some(violation) = outcome.violation {
            failed += 1;
            let boards = if options.boards { "--boards " } else { "" };
            println!("seed {seed}: {violation}");
            println!("  replay: causeway-sim {boards}--seed {seed} --trace");
        } else if options.seed.is_some() {
            println!("seed {seed}: hash {:016x}", outcome.hash);
        }
        let played = seed - first + 1;
        if played.is_multiple_of(100) {
            eprintln!("{played} worlds, {events} events, {failed} failed");
        }
    }
    println!("{count} worlds, {events} events, {failed} violated an invariant");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
