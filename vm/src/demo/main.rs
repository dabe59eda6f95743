//! `make demo`: two guests with every kind of traffic, and messages between processes; prints two
//! tables.

mod measure;
mod messages;
mod mpi;
mod options;
mod scene;
mod table;

use options::Options;
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
    let (mut report, shut) = match options.guests {
        true => guests(options)?,
        false => (Report::without_guests(), Ok(())),
    };
    let mut messages = messages::all(options.limit);
    messages.extend(mpi::all());
    report.add_messages(messages);
    print!("\n{}", report.text());
    report.write_json(&options.json)?;
    println!("\nThe tables as JSON: {}", options.json.display());
    if let Err(why) = &shut {
        eprintln!("causeway-demo: {why}");
    }
    Ok(report.ok && shut.is_ok())
}

/// Runs the guests' rows. Returns their report, and whether all programs exited cleanly.
fn guests(options: &Options) -> causeway_vm::Result<(Report, causeway_vm::Result<()>)> {
    let mut scene = Scene::set_up(options)?;
    let rows = measure::all(&mut scene, options.limit);
    let report = Report::new(&scene, rows);
    Ok((report, scene.tear_down()))
}

/// Prints a line of progress.
fn step(text: &str) {
    eprintln!("- {text}");
}
