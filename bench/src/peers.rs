//! What a user could pick instead, as far as it is on this machine.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Instant;

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

fn half_trip<P: Pair>(bytes: usize) -> std::io::Result<f64> {
    const ROUNDS: u32 = 10_000;
    let (mut near, mut far) = P::pair()?;
    let echo = std::thread::spawn(move || {
        pin(SERVER);
        let mut room = vec![0; bytes];
        for _ in 0..ROUNDS {
            far.read_exact(&mut room)?;
            far.write_all(&room)?;
        }
        Ok::<(), std::io::Error>(())
    });
    pin(CLIENT);
    let mut room = vec![0; bytes];
    let since = Instant::now();
    for _ in 0..ROUNDS {
        near.write_all(&room)?;
        near.read_exact(&mut room)?;
    }
    let us = since.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS) / 2.0;
    echo.join().map_err(|_| std::io::Error::other("the echo died"))??;
    Ok(us)
}

fn stream<P: Pair>(write: usize) -> std::io::Result<f64> {
    let total = if write < 1024 { 16_usize << 20 } else { 1 << 30 };
    let (mut near, mut far) = P::pair()?;
    let reader = std::thread::spawn(move || {
        pin(SERVER);
        let mut room = vec![0; 64 << 10];
        let mut got = 0;
        while got < total {
            got += far.read(&mut room)?;
        }
        Ok::<(), std::io::Error>(())
    });
    pin(CLIENT);
    let data = vec![7; write];
    let since = Instant::now();
    for _ in 0..total / write {
        near.write_all(&data)?;
    }
    reader.join().map_err(|_| std::io::Error::other("the reader died"))??;
    Ok(total as f64 / since.elapsed().as_secs_f64() / 1e9)
}

/// A Unix socket, both sides sleeping: half a round trip in microseconds.
pub fn unix_half_trip_us(bytes: usize) -> f64 {
    half_trip::<UnixStream>(bytes).unwrap_or(f64::NAN)
}

/// TCP over loopback, both sides sleeping: half a round trip in microseconds.
pub fn tcp_half_trip_us(bytes: usize) -> f64 {
    half_trip::<TcpStream>(bytes).unwrap_or(f64::NAN)
}

/// A Unix socket, in GB/s.
pub fn unix_stream_gbps(write: usize) -> f64 {
    stream::<UnixStream>(write).unwrap_or(f64::NAN)
}

/// TCP over loopback, in GB/s.
pub fn tcp_stream_gbps(write: usize) -> f64 {
    stream::<TcpStream>(write).unwrap_or(f64::NAN)
}
