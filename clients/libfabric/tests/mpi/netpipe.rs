//! NetPIPE as installed on this system: it checks every byte that it sent there and back.

use std::path::Path;

use crate::common::{Folder, Host, provider};
use crate::library::system;

const NETPIPE: &str = "/usr/bin/NPopenmpi";
/// Options for its modes of sending and receiving, with unaligned buffers.
const WAYS: [&str; 4] = ["", "-a", "-S", "-z -O 1,3"];

#[test]
fn netpipe_finds_every_byte_as_it_was_sent() {
    let Some(mpi) = system().filter(|_| Path::new(NETPIPE).exists()) else {
        eprintln!("NetPIPE is not installed (netpipe-openmpi): nothing is tested");
        return;
    };
    let host = Host::new(&["a"]);
    for way in WAYS {
        let folder = Folder::new();
        let program = format!("{NETPIPE} -i -u 1048576 -n 5 {way}");
        let boards = [host.sockets(&["a"])];
        let output = mpi.run_ready(Path::new(&program), &folder, 2, &boards, &provider());
        let passed = output.out.matches("Integrity check passed").count()
            + output.err.matches("Integrity check passed").count();
        assert!(output.good && passed > 30, "{way}: {passed} lengths passed: {output:?}");
    }
}
