//! An AF_VSOCK server in a process: `vsock-server SOCKET PORT`.
//!
//! The process attaches to a port of kind `vsock`, so that it has that port's CID: guests and other
//! processes of the group connect to it as to a guest. The server accepts one stream connection,
//! sends back all bytes that it receives, and ends with the connection. It waits 60 s for the
//! connection, and for room to send; a silent client keeps it waiting. A failure is printed, with
//! exit status 1.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use causeway_attach::native::{SocketError, Sockets, VsockOptions, VsockPort};
use causeway_wire::vsock::Type;

/// Time limit of the server's wait for the connection, and for room to send.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that are received at a time.
const BUFFER_BYTES: usize = 65_536;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, number] = &arguments[..] else { return Err("usage: SOCKET PORT".into()) };
    let number = number.parse()?;
    let mut sockets = Sockets::new(VsockPort::attach(Path::new(socket), VsockOptions::default())?);
    sockets.listen(Type::Stream, number);
    println!("listening at CID {}, port {number}", sockets.cid());

    let connection = sockets.accept(PATIENCE)?;
    println!("accepted CID {}, port {}", connection.cid, connection.port);
    let (mut buffer, mut total) = (vec![0; BUFFER_BYTES], 0);
    loop {
        // `try_receive` returns at once: 0 means that no byte is available yet, `Closed` that the
        // client has shut down its sending direction.
        match sockets.try_receive(connection, &mut buffer) {
            Ok(0) => _ = sockets.wait(PATIENCE)?,
            Ok(count) => {
                sockets.send(connection, &buffer[..count], PATIENCE)?;
                total += count;
            }
            Err(SocketError::Closed) => break,
            Err(error) => return Err(error.into()),
        }
    }
    sockets.close(connection)?;
    println!("{total} bytes sent back");
    Ok(())
}
