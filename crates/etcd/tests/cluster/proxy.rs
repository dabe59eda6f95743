//! A TCP proxy between a host and etcd, which can be cut and stalled.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::hosts::free_port;

/// Time after which the threads look for a change.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
struct Shared {
    is_cut: AtomicBool,
    /// Connections with smaller numbers forward nothing any more, and stay open.
    stalled_below: AtomicU64,
    connections: Mutex<Vec<TcpStream>>,
}

/// A proxy; its threads end with the value.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    to: u16,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<u64>>,
    number: u64,
}

impl Proxy {
    /// Starts a proxy to a port of this host.
    pub fn start(to: u16) -> Self {
        let mut proxy =
            Self { port: free_port(), to, shared: Arc::default(), thread: None, number: 1 };
        proxy.heal();
        proxy
    }

    /// Returns the URL of etcd behind the proxy.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Ends all connections; further ones are refused.
    pub fn cut(&mut self) {
        self.shared.is_cut.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            self.number = thread.join().unwrap();
        }
        for connection in self.shared.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Accepts connections again.
    pub fn heal(&mut self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        self.shared.is_cut.store(false, Ordering::Release);
        let (shared, to, number) = (self.shared.clone(), self.to, self.number);
        self.thread = Some(std::thread::spawn(move || accept(&listener, to, &shared, number)));
    }

    /// Connections of before forward nothing any more, as if the path was lost; new ones do.
    pub fn stall(&self) {
        self.shared.stalled_below.store(u64::MAX, Ordering::Release);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
    }
}

/// Accepts connections until the cut; returns the next number.
fn accept(listener: &TcpListener, to: u16, shared: &Arc<Shared>, mut number: u64) -> u64 {
    while !shared.is_cut.load(Ordering::Acquire) {
        // A stall concerns the connections of before.
        let stalled = shared.stalled_below.load(Ordering::Acquire);
        if stalled == u64::MAX {
            shared.stalled_below.store(number, Ordering::Release);
        }
        match listener.accept() {
            Ok((near, _)) => {
                let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                near.set_nonblocking(false).unwrap();
                let mut all = shared.connections.lock().unwrap();
                all.extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                for (from, to) in
                    [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)]
                {
                    let shared = shared.clone();
                    std::thread::spawn(move || copy(from, to, &shared, number));
                }
                number += 1;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(LOOK),
            Err(error) => panic!("{error}"),
        }
    }
    number
}

/// Forwards bytes until an end closes or the proxy is cut.
fn copy(mut from: TcpStream, mut to: TcpStream, shared: &Shared, number: u64) {
    let mut bytes = [0; 4_096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if number < shared.stalled_below.load(Ordering::Acquire) {
            continue;
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    if number >= shared.stalled_below.load(Ordering::Acquire) {
        let _ = to.shutdown(Shutdown::Both);
    }
}
