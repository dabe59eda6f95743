//! An AF_VSOCK client in a process: `vsock-client SOCKET CID PORT [BYTES]`.
//!
//! The process attaches to a port of kind `vsock`, connects to a port of another CID of the group
//! (a guest's or a process's), sends BYTES bytes and checks that the same bytes come back. The
//! server may be `vsock-server` or, in a guest, `socat VSOCK-LISTEN:PORT,fork EXEC:cat`. BYTES is 1
//! MiB by default. The connection and each wait for bytes may take 60 s. A failure is printed, with
//! exit status 1.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use causeway_attach::native::{Sockets, VsockOptions, VsockPort};
use causeway_wire::vsock::Type;

/// Time limit of the connection, and of each wait for bytes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum bytes sent between two reads of returned bytes. Without these reads both ends would
/// deadlock: the client waits for room to send, the server for room to send back.
const PIECE_BYTES: usize = 16_384;
/// Default number of bytes.
const BYTES_DEFAULT: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, cid, number, rest @ ..] = &arguments[..] else {
        return Err("usage: SOCKET CID PORT [BYTES]".into());
    };
    let bytes = rest.first().map_or(Ok(BYTES_DEFAULT), |text| text.parse())?;
    let mut sockets = Sockets::new(VsockPort::attach(Path::new(socket), VsockOptions::default())?);
    let connection = sockets.connect(Type::Stream, cid.parse()?, number.parse()?, PATIENCE)?;

    let data: Vec<u8> = (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect();
    let (mut sent, mut received, started) = (0, Vec::with_capacity(bytes), Instant::now());
    let mut buffer = vec![0; PIECE_BYTES];
    while received.len() < bytes {
        let piece = &data[sent..bytes.min(sent + PIECE_BYTES)];
        // `try_send` sends what the server's credit and the ring have room for, and returns.
        let now = sockets.try_send(connection, piece)?;
        sent += now;
        let came = sockets.try_receive(connection, &mut buffer)?;
        received.extend_from_slice(&buffer[..came]);
        if now == 0 && came == 0 && !sockets.wait(PATIENCE)? {
            return Err("the server does not send bytes back".into());
        }
    }
    // After the half-close the server reads the end and closes: the connection then gives an error,
    // `Closed`, or `Reset` where the server's process has ended already.
    sockets.shutdown_send(connection)?;
    while sockets.try_receive(connection, &mut buffer).is_ok() {
        sockets.wait(PATIENCE)?;
    }
    if received != data {
        return Err("the received bytes differ from the sent bytes".into());
    }
    let rate = 2.0 * bytes as f64 / started.elapsed().as_secs_f64() / 1e6;
    println!("{bytes} bytes there and back, {rate:.0} MB/s");
    Ok(())
}
