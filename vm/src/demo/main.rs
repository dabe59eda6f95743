//! `make demo`: two real guests, every kind of traffic, one table.

mod measure;
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

/// Runs it all; whether every row worked.
fn run(options: &Options) -> causeway_vm::Result<bool> {
    causeway_vm::rundir::clean_on_signals()?;
    let mut scene = Scene::set_up(options)?;
    let rows = measure::all(&mut scene, options.limit);
    let report = Report::new(&scene, rows);
    let shut = scene.tear_down();
    print!("\n{}", report.text());
    report.write_json(&options.json)?;
    println!("\nThe same as JSON: {}", options.json.display());
    if let Err(why) = &shut {
        eprintln!("causeway-demo: {why}");
    }
    Ok(report.ok && shut.is_ok())
}

/// A line of progress.
fn step(text: &str) {
    eprintln!("- {text}");
}
