//! Lists the fuzz targets, replays inputs, and writes the seeds of the corpora.
//!
//! `replay` runs each file once, in the main thread: a violation is a panic, which ends the
//! program, with the name of the file printed before. `seeds` overwrites files of the same names in
//! an existing folder. An unknown command or target, and a file that cannot be read or written, end
//! the program with status 2. A developer runs it, with the command that `scripts/fuzz.sh` prints
//! for an input that was found; no fuzzer is linked.

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: causeway-fuzz list
       causeway-fuzz replay TARGET FILE...   run each input once
       causeway-fuzz seeds TARGET DIRECTORY  write the seeds of the target";

fn run(arguments: &[String]) -> Result<(), String> {
    let target = |name: &String| {
        let expected = || format!("no target {name:?}: expected one of {}", causeway_fuzz::names());
        causeway_fuzz::find(name).ok_or_else(expected)
    };
    match arguments {
        [word] if word == "list" => {
            for target in causeway_fuzz::TARGETS {
                println!("{}", target.name);
            }
        }
        [word, name, files @ ..] if word == "replay" && !files.is_empty() => {
            let target = target(name)?;
            for file in files {
                let input = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
                println!("{name}: {file}: {} bytes", input.len());
                (target.run)(&input);
            }
        }
        [word, name, directory] if word == "seeds" => {
            for (number, seed) in (target(name)?.seeds)().iter().enumerate() {
                let path = Path::new(directory).join(format!("seed-{number:02}"));
                let shown = path.display();
                std::fs::write(&path, seed).map_err(|error| format!("{shown}: {error}"))?;
            }
        }
        _ => return Err(USAGE.to_owned()),
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::from(2)
        }
    }
}
