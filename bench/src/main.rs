//! `make bench`: Causeway, comparable software, and the machine's own floor, in one run.
//!
//! Most rows run on two pinned cores: the dispatcher (or the peer's switch) on one, the sender and
//! receiver on the other ([`pin`]). A figure is the median of the rounds, with their spread. The
//! floor (the transfer of a cache line between the two cores) is measured before and after each
//! figure; a round in which it moved is repeated within limits, because on shared machines the two
//! cores move ([`rounds`]). Ratios are of one round; absolute figures are comparable only with the
//! floor beside them.
//!
//! Every row names its kind of guest, and Causeway's side of a row never mixes kinds. `main` runs
//! the options' rows ([`report`]), or, with a first argument of `inner` or `bare`, serves as a
//! child process of the benchmark.

mod bare;
mod effort;
mod floor;
mod hosts;
mod index;
mod inner;
mod machine;
mod options;
mod peers;
mod pin;
mod plot;
mod plots;
mod progress;
mod report;
mod results;
mod rig;
mod rounds;
mod row;
mod rows;
mod stats;
mod sweep;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    pin::cores();
    match std::env::args().nth(1).as_deref() {
        Some(inner::FLAG) => return inner::serve(),
        Some(bare::FLAG) => return bare::serve(),
        _ => {}
    }
    let options = match options::Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{}", options::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("causeway-bench: {why}\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match report::run(&options) {
        Ok(status) => status,
        Err(why) => {
            eprintln!("causeway-bench: {why}");
            ExitCode::FAILURE
        }
    }
}
