//! `make demo`: two guests with every kind of traffic, messages between processes, and two guests
//! with RDMA; prints three tables.
//!
//! `causeway-demo` runs in one process, with causewayd, the guests and the programs as children
//! that end with it. Each row is one exchange; most check its content (pings and perftest do not).
//! A row that fails is shown with its reason, the others go on, and the exit status is 1. The two
//! guests of the first table must boot: without QEMU or an image the demo ends with the reason and
//! status 1, before the other tables (KVM is not needed; `--messages` and `--rdma` skip them). Rows
//! between hosts, MPI and the third table are omitted with the reason where this machine lacks a
//! part or a privilege. A wrong command line has status 2. SIGINT, SIGTERM and SIGHUP remove the
//! files of the run ([`causeway_vm::rundir`]).

mod keep;
mod measure;
mod messages;
mod mpi;
mod options;
mod rdma;
mod scene;
mod table;

use options::{Options, Part};
use scene::Scene;
use std::process::ExitCode;
use table::Report;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{}", options::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("causeway-demo: {why}\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("causeway-demo: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the demo. Returns whether every row passed.
fn run(options: &Options) -> causeway_vm::Result<bool> {
    causeway_vm::rundir::clean_on_signals()?;
    if options.shows {
        causeway_vm::process::show_commands();
    }
    let (mut report, mut scene) = match options.part {
        Part::All | Part::Guests => guests(options)?,
        Part::Messages | Part::Rdma => (Report::without_guests(), None),
    };
    let mut shut = Ok(());
    if !options.keep {
        shut = scene.take().map_or(Ok(()), Scene::tear_down);
    }
    if matches!(options.part, Part::All | Part::Messages) {
        let mut messages = messages::all(options.limit);
        messages.extend(mpi::all());
        report.add_messages(messages);
    }
    if matches!(options.part, Part::All | Part::Rdma) {
        report.add_rdma(rdma::all());
    }
    print!("\n{}", report.text());
    report.write_json(&options.json)?;
    println!("\nThe tables as JSON: {}", options.json.display());
    if let Some(scene) = scene {
        keep::hold(&scene)?;
        shut = scene.tear_down();
    }
    if let Err(why) = &shut {
        eprintln!("causeway-demo: {why}");
    }
    Ok(report.ok && shut.is_ok())
}

/// Runs the guests' rows. Returns their report, and the guests.
fn guests(options: &Options) -> causeway_vm::Result<(Report, Option<Scene>)> {
    let mut scene = Scene::set_up(options)?;
    let rows = measure::all(&mut scene, options.limit);
    let report = Report::new(&scene, rows);
    Ok((report, Some(scene)))
}

/// Prints a line of progress.
fn step(text: &str) {
    eprintln!("- {text}");
}
