//! `make matrix`: most programs of the RDMA tests in guests of each kernel, four guests of a group,
//! kills of causewayd under load, and hot unplug. Writes a page with the results.
//!
//! Each unit of work, such as `bookworm/verbs`, is stored when it ends; a later call runs only the
//! units that are missing, and kills up to the wanted number. libfabric and MPI over messages
//! ([`causeway_vm::rdma::programs::messages`]) are not among the programs.
//!
//! `causeway-matrix` runs in one process, with causewayd and the guests as children that end with
//! it. A step that fails is stored with its reason and does not end its unit; the exit status is 1
//! if a step of the selected units failed, now or in a stored result, and 2 for a wrong command
//! line. SMC-R is recorded as unavailable where the kernel lacks it; any other missing program is a
//! failed step.

mod kills;
mod options;
mod page;
mod store;
mod units;

use causeway_vm::Result;
use options::Options;
use std::process::ExitCode;
use std::time::Instant;
use store::Store;
use units::Unit;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{}", options::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("causeway-matrix: {why}\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("causeway-matrix: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the missing units and writes the page. Returns whether no step of the selected units
/// failed.
fn run(options: &Options) -> Result<bool> {
    causeway_vm::rundir::clean_on_signals()?;
    let store = Store::open()?;
    let wanted: Vec<Unit> = Unit::all().filter(|unit| options.selects(&unit.name())).collect();
    let mut passed = true;
    for (number, unit) in (1..).zip(&wanted) {
        let known = if options.fresh { None } else { store.load(unit) };
        if let Some(record) = known.filter(|record| record.is_complete(unit.part, options.kills)) {
            println!("[{number}/{}] {}: stored, {}", wanted.len(), unit.name(), record.summary());
            passed &= record.has_passed();
            continue;
        }
        println!("[{number}/{}] {}", wanted.len(), unit.name());
        let start = Instant::now();
        let record = unit.run(&store, options)?;
        let seconds = start.elapsed().as_secs();
        println!("[{number}/{}] {}: {} ({seconds} s)", wanted.len(), unit.name(), record.summary());
        passed &= record.has_passed();
        page::write(&store, &options.page)?;
    }
    page::write(&store, &options.page)?;
    println!("The page: {}", options.page.display());
    Ok(passed)
}
