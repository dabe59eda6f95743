//! The `info` command: prints the number, MAC and name of each NIC of this host, as text or JSON.
//!
//! The command asks the loaded library only: it opens no endpoint, and shows neither NICs of other
//! hosts nor counters (`causeway peer list` and `causeway stats` do). A NIC whose name cannot be
//! found has an empty name. Without a NIC `libmyriexpress` cannot be initialised, and the command
//! fails; with a library that initialises all the same, the list is empty, and a hint goes to
//! standard error. `main` calls it once, in the only thread.

use std::io::Write as _;

use serde_json::json;

use crate::api::Api;
use crate::args::InfoArgs;
use crate::error::Error;

/// Returns the address of a NIC in the usual form of a MAC.
fn mac(nic: u64) -> String {
    let [_, _, mac @ ..] = nic.to_be_bytes();
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Prints the NICs.
pub fn run(api: &Api, how: &InfoArgs) -> Result<(), Error> {
    let boards = api.nics()?;
    let named = boards.iter().map(|&nic| (nic, api.name(nic).unwrap_or_default()));
    let mut out = std::io::stdout().lock();
    if how.json {
        let boards: Vec<_> = named
            .enumerate()
            .map(|(board, (nic, name))| json!({ "board": board, "mac": mac(nic), "name": name }))
            .collect();
        return Ok(writeln!(out, "{:#}", json!({ "boards": boards }))?);
    }
    writeln!(out, "board  mac                name")?;
    for (board, (nic, name)) in named.enumerate() {
        writeln!(out, "{board:>5}  {}  {name}", mac(nic))?;
    }
    if boards.is_empty() {
        eprintln!(
            "causeway-mx: this host has no NIC: is causewayd running, with a port of kind mx?"
        );
    }
    Ok(())
}
