//! I/O between sockets and guest memory.

use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use causeway_host::net::guest_io;
use causeway_memory::{
    Cursor, DirtyLog, Grant, Grants, Map, Mapping, OutOfGrant, Region, Rights, Span, create,
};

const PAGE: u64 = 4096;

fn mapping(pages: u64) -> Arc<Mapping> {
    let file = create("guest-io", pages * PAGE).unwrap();
    Arc::new(Mapping::new(file.as_fd(), 0, pages * PAGE).unwrap())
}

#[test]
fn guest_io_records_received_bytes_in_the_dirty_log() {
    let map = Map::new(vec![Region { guest: 0, user: 0, mapping: mapping(8) }]).unwrap();
    let file = create("log", 64).unwrap();
    let log = Arc::new(DirtyLog::new(file.as_fd(), 0, 64).unwrap());
    let map = map.logged(Some(log));
    let (mut near, far) = UnixStream::pair().unwrap();
    near.write_all(&[9; 5000]).unwrap();
    let into = [Span { addr: 3 * PAGE, len: 5000 }];
    let got = guest_io::receive(far.as_fd(), &map, &mut Cursor::new(&into), 5000);
    assert_eq!(got, Ok(5000));
    let mut bits = [0];
    std::fs::File::from(file).read_exact_at(&mut bits, 0).unwrap();
    assert_eq!(bits[0], 0b11000, "pages 3 and 4");
}

#[test]
fn guest_io_respects_the_rights_of_grants() {
    let memory = mapping(2);
    let mut grants = Grants::new();
    for (page, rights) in [(0, Rights::READ), (1, Rights::WRITE)] {
        let grant = Grant { guest: page * PAGE, len: PAGE, offset: page * PAGE, rights };
        grants.grant_in(grant, &memory).unwrap();
    }
    let map = grants.epoch();
    let (near, far) = UnixStream::pair().unwrap();
    let both = [Span { addr: 0, len: 2 * PAGE as u32 }];
    // The second page is not readable: the message ends before it.
    let sent = guest_io::send(near.as_fd(), &map, &mut Cursor::new(&both), 2 * PAGE);
    assert_eq!(sent, Ok(PAGE as usize));
    let (read, write) = ([Span { addr: 0, len: 64 }], [Span { addr: PAGE, len: 64 }]);
    let got = guest_io::receive(far.as_fd(), &map, &mut Cursor::new(&write), 64);
    assert_eq!(got, Ok(64));
    let got = guest_io::receive(far.as_fd(), &map, &mut Cursor::new(&read), 64);
    assert_eq!(got, Ok(0), "nothing is received into memory that may not be written");
    assert!(matches!(map.read(PAGE, &mut [0; 4]), Err(OutOfGrant { .. })));
}
