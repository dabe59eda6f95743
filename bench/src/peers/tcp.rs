//! A TCP stream in one direction, for the peers on two hosts: [`super::kernel`],
//! [`super::underlay`] and [`super::overlay`].
//!
//! Each side is a thread in its namespace. A wait of either ends after [`QUIET`] (20 s) with an
//! error: for the connection, for bytes, and for room. A connect ends after the kernel's own time,
//! which is longer. The content is not checked.

use std::io::{Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use super::wait::{QUIET, accept, limit, timed};

/// Bytes of a write.
const WRITE: usize = 64 << 10;

/// Accepts one connection at `address` and reads it to its end. Returns bytes per second since the
/// connection.
pub fn receive(address: &str) -> Result<f64> {
    let mut stream = accept(&TcpListener::bind(address)?, QUIET)?;
    limit(&stream)?;
    let (mut room, mut got, since) = (vec![0; 4 * WRITE], 0, Instant::now());
    loop {
        match stream.read(&mut room).map_err(timed)? {
            0 => return Ok(got as f64 / since.elapsed().as_secs_f64()),
            count => got += count,
        }
    }
}

/// Connects to `address` and writes `total` bytes, rounded down to writes of 64 KiB.
pub fn send(address: &str, total: u64) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    limit(&stream)?;
    let data = vec![7; WRITE];
    for _ in 0..total / WRITE as u64 {
        stream.write_all(&data).map_err(timed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_stream_is_read_to_its_end() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| receive(&free));
            let since = Instant::now();
            while send(&free, 1 << 20).is_err() {
                assert!(since.elapsed() < QUIET, "the reader does not listen");
            }
            assert!(reader.join().unwrap().unwrap() > 0.0);
        });
    }
}
