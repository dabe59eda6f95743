//! `causeway-sim`: plays worlds, and tells how to play one again that broke a promise.

use std::process::ExitCode;

use causeway_sim::{Wish, boards};
use clap::Parser;

/// Random worlds of guests, each from one seed
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Play this many worlds
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Play the world of this seed alone
    #[arg(long)]
    seed: Option<u64>,
    /// Worlds of boards of MX endpoints, instead of guests
    #[arg(long)]
    boards: bool,
    /// Print every step
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let (first, count) = match options.seed {
        Some(seed) => (seed, 1),
        None => (options.first, options.seeds),
    };
    let wish = Wish { print: options.trace, keep: false, descriptors: true };
    let (mut events, mut failed) = (0, 0);
    for seed in first..first.saturating_add(count) {
        let play = if options.boards { boards::play } else { causeway_sim::play };
        let outcome = play(seed, wish);
        events += outcome.count;
        if let Some(violation) = outcome.violation {
            failed += 1;
            let boards = if options.boards { "--boards " } else { "" };
            println!("seed {seed}: {violation}");
            println!("  again: causeway-sim {boards}--seed {seed} --trace");
        } else if options.seed.is_some() {
            println!("seed {seed}: hash {:016x}", outcome.hash);
        }
        let played = seed - first + 1;
        if played.is_multiple_of(100) {
            eprintln!("{played} worlds, {events} events, {failed} broken");
        }
    }
    println!("{count} worlds, {events} events, {failed} broken a promise");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
