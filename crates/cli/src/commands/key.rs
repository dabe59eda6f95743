//! `causeway key`: generates private keys of links and derives their public keys, without the
//! daemon.
//!
//! `generate` reads random bytes from /dev/urandom and prints the private key, or writes it to a
//! new file of mode 0600 and prints the public key; an existing file is not overwritten, but an
//! error of exit status 1. `public` reads a file of at most [`KEY_FILE_BYTES_MAX`] (256) bytes, and
//! `-` is stdin; a file that is longer, or no key, is an error of exit status 2.
//! Certificates of TLS links are not made here, and no key is sent to the daemon: the operator
//! names the file in the configuration and gives the public key to the peer's operator.
//!
//! `commands::run` is the caller; the format is `causeway_model::keys`.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use causeway_model::keys::{KEY_LEN, KeyError, PrivateKey};
use serde_json::json;

use super::{CommandContext, print, read_file};
use crate::args::{Format, KeyVerb};
use crate::error::{Error, Result};
use crate::limits::KEY_FILE_BYTES_MAX;

/// Runs `causeway key` and prints the result.
pub fn run(cx: &CommandContext, verb: KeyVerb) -> Result<()> {
    match verb {
        KeyVerb::Generate { out: Some(file) } => {
            let key = generate()?;
            write(&file, &key)?;
            public(cx, &key)
        }
        KeyVerb::Generate { out: None } => {
            let key = generate()?;
            let text = key.to_text();
            match cx.format {
                Format::Json => print(&format!("{:#}\n", json!({ "private_key": text.as_str() }))),
                Format::Table => print(&format!("{}\n", text.as_str())),
            }
        }
        KeyVerb::Public { file } => {
            let text = read_file(&file, KEY_FILE_BYTES_MAX)?;
            let key = text.trim().parse();
            let wrong = |e: KeyError| Error::Usage(format!("{}: {e}", file.display()));
            public(cx, &key.map_err(wrong)?)
        }
    }
}

/// Prints the public key of a private key.
fn public(cx: &CommandContext, key: &PrivateKey) -> Result<()> {
    let public = key.public().to_string();
    cx.show(&json!({ "public_key": public }), |_| Ok(format!("{public}\n")))
}

/// Generates a key from the kernel's random numbers.
fn generate() -> Result<PrivateKey> {
    let mut random = [0; KEY_LEN];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random));
    read.map_err(|error| Error::Output { what: "/dev/urandom".into(), error })?;
    Ok(PrivateKey::new(random))
}

/// Writes a key to a new file that only its owner can read.
fn write(file: &Path, key: &PrivateKey) -> Result<()> {
    let failed = |error| Error::Output { what: file.display().to_string(), error };
    let mut open = OpenOptions::new();
    let mut to = open.write(true).create_new(true).mode(0o600).open(file).map_err(failed)?;
    let text = key.to_text();
    to.write_all(text.as_bytes()).and_then(|()| to.write_all(b"\n")).map_err(failed)
}
