//! `causeway`, the operator's command-line tool.
//!
//! The tool translates a command line into requests to the control socket of causewayd, and prints
//! the replies. It keeps no state and imports only `causeway-model`, `causeway-wire` for the test
//! attach of `causeway mpi-run`, `causeway-forward` for `causeway forward` and `causeway-web` for
//! `causeway web`. [`args`] defines the command line, [`client`] transports requests, [`commands`]
//! implements the verbs, [`view`] gives replies their types, [`table`] formats text output,
//! [`rates`] computes rates from two samples, [`top`] is the live view, [`vmm`] prints how guests
//! attach, [`doctor`] checks host and daemon with [`account`] and [`program`].
//!
//! A process executes a command in its main thread (`top` has another for requests, `web` those of
//! its server, a forwarder one for the reports of each process, such a process one for the end of
//! its standard input, `forward --stdio` one for standard input, and [`program`] one for an output)
//! and ends with the exit status of [`error::Error::status`]; a closed pipe at stdout is a success.
//! No request is sent again after a failure, except by `top`, `web` and the forwarder. The tool
//! reads no configuration of its own, and changes nothing except through the daemon: the files that
//! `key`, `man`, `capture` and `extcap` write, the sockets of `forward` and `web`, and the program
//! that `mpi-run` executes are the exceptions. The daemon checks values and access rights. If the
//! command line may name a kind of ports of a newer daemon, the daemon's kinds are requested before
//! the command line is parsed (`load_kinds`); without an answer within 10 s, only the kinds of this
//! release are known.

mod account;
mod args;
mod client;
mod commands;
mod doctor;
mod error;
mod limits;
mod program;
mod rates;
mod table;
mod top;
mod view;
mod vmm;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    load_kinds();
    let cli = args::Cli::try_parse().unwrap_or_else(|error| {
        if error.use_stderr() && std::env::args().any(|word| word == "mpi-env") {
            // The shell must evaluate a failure instead of an empty output.
            print!("{}", commands::EVALUATED_FAILURE);
        }
        error.exit()
    });
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        // The output has the differences.
        Err(error @ error::Error::Differs) => ExitCode::from(error.status()),
        Err(error) => {
            eprintln!("causeway: {error}");
            ExitCode::from(error.status())
        }
    }
}

/// Returns the value of an option in `--option VALUE` or `--option=VALUE`.
fn option_value(words: &[String], option: &str) -> Option<String> {
    words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix(option)? {
        "" => words.get(at.saturating_add(1)).cloned(),
        rest => rest.strip_prefix('=').map(str::to_owned),
    })
}

/// Adds the daemon's kinds of ports if the command line may name a kind that this release does not
/// have: for `port add --kind KIND`, and for help, manual pages and completions with `--control` or
/// `CAUSEWAY_CONTROL`. Without an answer of the daemon nothing is added.
fn load_kinds() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let value_of = |option: &str| option_value(&words, option);
    let prefix = |word: &String, of: &str| !word.is_empty() && of.starts_with(word.as_str());
    let names_new_kind = words.iter().any(|word| prefix(word, "add"))
        && value_of("--kind").is_some_and(|kind| !args::options::is_known(&kind));
    let prints_definition =
        words.iter().any(|word| ["man", "completion", "--help", "-h"].contains(&word.as_str()));
    let control = value_of("--control").or_else(|| std::env::var("CAUSEWAY_CONTROL").ok());
    if !(names_new_kind || prints_definition && control.is_some()) {
        return;
    }
    let control = control.map_or_else(client::default_control, PathBuf::from);
    let client = client::ControlClient::new(control, limits::TIMEOUT_S_DEFAULT);
    // Without an answer the command line is parsed with the kinds of this release only.
    if let Ok(kinds) = client.get("/v1/kinds").and_then(|value| client::view(&value)) {
        args::options::add_kinds(kinds);
    }
}

#[cfg(test)]
mod tests {
    use super::option_value;

    #[test]
    fn option_values_are_found_in_both_forms() {
        let of = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            option_value(&words, "--kind")
        };
        assert_eq!(of("port add x --kind new --group g").as_deref(), Some("new"));
        assert_eq!(of("port add x --kind=new").as_deref(), Some("new"));
        assert_eq!(of("port add x --kinds=old --kind=new").as_deref(), Some("new"));
        assert_eq!(of("port add x --kind"), None);
        assert_eq!(of("port add x --group kind"), None);
    }
}
