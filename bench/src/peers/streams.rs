//! Host streams: Unix sockets and TCP over loopback.
//!
//! Rows of sockets compare with them: sender and receiver are two threads of the benchmark on the
//! two cores, both asleep while they wait, as processes with blocking sockets are. The content is
//! not checked. An error of a system call leaves the peer out. Nothing is lost on these sockets, so
//! that waits have no time limit.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use crate::effort::Effort;
use crate::pin::{CLIENT, SERVER, pin};

/// Two connected streams.
trait Pair: Read + Write + Send + 'static {
    fn pair() -> std::io::Result<(Self, Self)>
    where
        Self: Sized;
}

impl Pair for UnixStream {
    fn pair() -> std::io::Result<(Self, Self)> {
        UnixStream::pair()
    }
}

impl Pair for TcpStream {
    fn pair() -> std::io::Result<(Self, Self)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (far, _) = listener.accept()?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        Ok((near, far))
    }
}

fn half_trip<P: Pair>(bytes: usize, rounds: u64) -> std::io::Result<f64> {
    let (mut near, mut far) = P::pair()?;
    let echo = std::thread::spawn(move || {
        pin(SERVER);
        let mut room = vec![0; bytes];
        for _ in 0..rounds {
            far.read_exact(&mut room)?;
            far.write_all(&room)?;
        }
        Ok::<(), std::io::Error>(())
    });
    pin(CLIENT);
    let mut room = vec![0; bytes];
    let since = Instant::now();
    for _ in 0..rounds {
        near.write_all(&room)?;
        near.read_exact(&mut room)?;
    }
    let us = since.elapsed().as_secs_f64() * 1e6 / rounds as f64 / 2.0;
    echo.join().map_err(|_| std::io::Error::other("the echo thread panicked"))??;
    Ok(us)
}

fn stream<P: Pair>(write: usize, total: usize) -> std::io::Result<f64> {
    let (mut near, mut far) = P::pair()?;
    let reader = std::thread::spawn(move || {
        pin(SERVER);
        let mut room = vec![0; 64 << 10];
        let mut got = 0;
        while got < total {
            match far.read(&mut room)? {
                0 => break,
                count => got += count,
            }
        }
        Ok::<(), std::io::Error>(())
    });
    pin(CLIENT);
    let data = vec![7; write];
    let since = Instant::now();
    for _ in 0..total.div_ceil(write) {
        near.write_all(&data)?;
    }
    reader.join().map_err(|_| std::io::Error::other("the reader's thread panicked"))??;
    Ok(total as f64 / since.elapsed().as_secs_f64() / 1e9)
}

/// Half a round trip with both sides sleeping, in microseconds.
fn half_trips<P: Pair>(effort: &Effort, bytes: usize) -> Result<Vec<f64>, String> {
    let rounds = effort.rounds(10_000);
    effort.each(|| half_trip::<P>(bytes, rounds).map_err(|e| e.to_string()))
}

/// A one-way stream, in GB/s.
fn streams<P: Pair>(effort: &Effort, write: usize) -> Result<Vec<f64>, String> {
    let total = effort.rounds(if write < 1024 { 16 << 20 } else { 1 << 30 }) as usize;
    effort.each(|| stream::<P>(write, total).map_err(|e| e.to_string()))
}

/// A Unix socket, both sides sleeping: half a round trip in microseconds.
pub fn unix_half_trip_us(effort: &Effort, bytes: usize) -> Result<Vec<f64>, String> {
    half_trips::<UnixStream>(effort, bytes)
}

/// TCP over loopback, both sides sleeping: half a round trip in microseconds.
pub fn tcp_half_trip_us(effort: &Effort, bytes: usize) -> Result<Vec<f64>, String> {
    half_trips::<TcpStream>(effort, bytes)
}

/// A Unix socket, in GB/s.
pub fn unix_stream_gbps(effort: &Effort, write: usize) -> Result<Vec<f64>, String> {
    streams::<UnixStream>(effort, write)
}

/// TCP over loopback, in GB/s.
pub fn tcp_stream_gbps(effort: &Effort, write: usize) -> Result<Vec<f64>, String> {
    streams::<TcpStream>(effort, write)
}
