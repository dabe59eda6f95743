//! Programs that run in guests, by subject. Most public functions append steps.
//!
//! The programs are those of Debian and the traffic of the agent, but for three: `ranks.c` (MPI),
//! `loopback.c` (verbs that no packaged program uses) and `getinfo.c` (repeated calls of
//! `fi_getinfo`) are compiled on the host, with a C library that must not be newer than the
//! guests'. A step runs one program, a server and its client, or several in turn, by the guests'
//! agents with a time limit for each (40 s for most); a step that fails does not end the sequence
//! ([`super::Steps`]). The matrix and tests call the functions, and the demo some of [`mpi`] and
//! [`messages`]; the matrix calls none of [`messages`]. Some steps leave modules, mounts, settings
//! or programs in the guests; the matrix boots guests anew for each unit.

pub mod device;
pub mod ethernet;
pub mod loopback;
pub mod many;
pub mod messages;
pub mod mpi;
pub mod sockets;
pub mod storage;
pub mod verbs;

use crate::error::{Error, Result};
use crate::{RunDir, process};

/// Bytes of a stream.
const STREAM_BYTES: u64 = 4 << 20;

/// Compiles a C program on the host and returns the executable.
fn compile(compiler: &str, source: &str, libraries: &[&str]) -> Result<Vec<u8>> {
    let dir = RunDir::new()?;
    let (file, program) = (dir.join("program.c"), dir.join("program"));
    std::fs::write(&file, source).map_err(Error::io("write a program for guests"))?;
    let mut command = process::tied(compiler);
    command.arg("-O2").arg("-o").arg(&program).arg(&file).args(libraries);
    process::output(&mut command)?;
    std::fs::read(&program).map_err(Error::io("read a program for guests"))
}
