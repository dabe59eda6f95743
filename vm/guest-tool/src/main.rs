//! `/init` of a test guest; on any other machine, a command that generates the same traffic.
//!
//! As process 1 the program becomes the agent (`init`) and never returns. Otherwise it runs one
//! command ([`USAGE`]) and prints its result as a JSON object; a wrong command line, a failed
//! exchange and changed content go to standard error, with exit status 1. `serve` and `shell` print
//! their object when they listen; `serve` runs until the process is killed, and `shell` until an
//! accept fails.
//! `vm::traffic`, `vm::rdma`, the demo and tests run the commands in guests by the agent; on the
//! host they call this crate's functions, or run the program as a child process.

use causeway_guest_tool::transport::Target;
use causeway_guest_tool::{client, flood, hostile, init, serve, shell};
use serde::Serialize;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "usage:
  causeway-guest ping-pong TARGET BYTES ROUNDS LIMIT_MS
  causeway-guest stream TARGET WRITE_BYTES MAX_BYTES LIMIT_MS
  causeway-guest half-close TARGET BYTES
  causeway-guest messages TARGET BYTES...
  causeway-guest flood TARGET BYTES COUNT
  causeway-guest sink TARGET PAUSE_US            (accepts one connection and reads it to its end)
  causeway-guest serve TARGET...
  causeway-guest shell TARGET                    (a shell for each connection; for test guests only)
  causeway-guest hostile net|vsock CASE PEER     (in a guest, as root: PEER is a MAC or a CID)
  causeway-guest hostile last CASE PEER
  causeway-guest hostile rebind net|vsock
TARGET: tcp:ADDRESS:PORT, smc:ADDRESS:PORT, vsock:CID:PORT, seqpacket:CID:PORT, unix:PATH, hybrid:PATH:PORT
Each prints one JSON object, serve and shell when they listen; the exit code is 0 only when all content
arrived intact.";

fn main() -> ExitCode {
    if std::process::id() == 1 {
        init::main();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match command(&arguments) {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn command(arguments: &[String]) -> Result<String, String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["ping-pong", target, bytes, rounds, limit] => {
            let limit = Duration::from_millis(number(limit)?);
            text(client::ping_pong(&target.parse()?, number(bytes)?, number(rounds)?, limit))
        }
        ["stream", target, bytes, most, limit] => {
            let limit = Duration::from_millis(number(limit)?);
            text(client::stream(&target.parse()?, number(bytes)?, number(most)?, limit))
        }
        ["half-close", target, bytes] => text(client::half_close(&target.parse()?, number(bytes)?)),
        ["messages", target, sizes @ ..] => {
            let sizes = sizes.iter().map(|s| number(s)).collect::<Result<Vec<_>, _>>()?;
            text(client::messages(&target.parse()?, &sizes))
        }
        ["flood", target, bytes, count] => {
            text(flood::flood(&target.parse()?, number(bytes)?, number(count)?))
        }
        ["sink", target, pause] => {
            text(flood::sink(&target.parse()?, Duration::from_micros(number(pause)?)))
        }
        ["hostile", "rebind", kind] => {
            text(hostile::rebind(kind).map(|()| json!({ "rebound": kind })))
        }
        ["hostile", "last", case, peer] => {
            text(hostile::last(case, peer).map(|()| json!({ "case": case })))
        }
        ["hostile", kind, case, peer] => text(hostile::run(kind, case, peer)),
        ["serve", targets @ ..] if !targets.is_empty() => {
            for target in targets {
                let target: Target = target.parse()?;
                serve::spawn(target.clone()).map_err(|e| format!("listen on {target}: {e}"))?;
            }
            println!("{}", json!({ "listening": targets }));
            loop {
                std::thread::park();
            }
        }
        ["shell", target] => {
            let target: Target = target.parse()?;
            let listener = target.listen().map_err(|e| format!("listen on {target}: {e}"))?;
            println!("{}", json!({ "listening": [target.to_string()] }));
            match shell::serve(&listener) {
                Ok(never) => match never {},
                Err(e) => Err(format!("serve shells on {target}: {e}")),
            }
        }
        _ => Err(USAGE.into()),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number in range"))
}

fn text<T: Serialize>(result: std::io::Result<T>) -> Result<String, String> {
    let value = result.map_err(|e| e.to_string())?;
    serde_json::to_string(&value).map_err(|e| e.to_string())
}
