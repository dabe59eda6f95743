//! Hostile frontends and hostile causewayds lose their own connection.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use causeway_attach::Event;
use causeway_attach::limits::CONTROL_BURST_NS;
use causeway_attach::native::{VfioUserClient, VfioUserError};
use causeway_attach::vfio_user::message::{
    HEADER_BYTES, Header, RegionAccess, ResumePhase, command,
};
use causeway_holder::limits::{DEATHS_MAX, TRIES_MAX};

use crate::bench::{Life, PORT, client, event, is_closed, listen, map, memory, port, read};
use crate::common::{Control, Held, LIMIT};

/// Reads a command, without its descriptors.
fn receive(mut stream: &UnixStream) -> Option<(Header, Vec<u8>)> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).ok()?;
    let header = Header::parse(header).unwrap();
    let mut payload = vec![0; header.payload_bytes()];
    stream.read_exact(&mut payload).ok()?;
    Some((header, payload))
}

/// Answers commands with success up to the end of the set-up.
pub fn answer_setup(mut stream: &UnixStream) {
    while let Some((header, payload)) = receive(stream) {
        stream.write_all(&header.reply(0).emit()).unwrap();
        if header.command == command::RESUME && payload == ResumePhase::End.emit() {
            return;
        }
    }
}

#[test]
fn vfio_frontend_cannot_resume_a_device() {
    let held = Held::new();
    let life = Life::new(&held);
    let mut frontend = client(&held);
    for phase in [ResumePhase::Begin, ResumePhase::End] {
        let refused = frontend.request(command::RESUME, &phase.emit(), &[]);
        assert!(matches!(refused, Err(VfioUserError::Refused { errno: 95, .. })), "{refused:?}");
    }
    assert_eq!(read(&mut frontend, 8), [0; 4]);
    assert!(!life.seen.events.lock().unwrap().contains(&Event::Resumed));
}

/// Returns the processor time of all relays of this process, in nanoseconds.
fn relays_cpu_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path());
    let is_relay = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == "relay-flood")
    };
    let time = |path: std::path::PathBuf| {
        let times = std::fs::read_to_string(path.join("schedstat")).unwrap();
        times.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    tasks.filter(is_relay).map(time).sum()
}

#[test]
fn vfio_flood_of_refused_commands_uses_half_a_processor() {
    let held = Held::new();
    let _life = Life::named(&held, "flood");
    let stream = UnixStream::connect(held.path("flood")).unwrap();
    let mut frontend = VfioUserClient::over(stream.try_clone().unwrap().into()).unwrap();
    // The flood expects no replies.
    let resume = Header::command(7, command::RESUME, 4).without_reply().emit();
    let message = [resume.as_slice(), &[0; 4]].concat().repeat(2048);
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(4) {
        (&stream).write_all(&message).unwrap();
    }
    let (used_ns, passed) = (relays_cpu_ns(), since.elapsed());
    let limit = Duration::from_nanos(CONTROL_BURST_NS) + passed / 2 + Duration::from_millis(200);
    println!("{used_ns} ns of processor time in {passed:?}");
    assert!(used_ns > 0 && Duration::from_nanos(used_ns) < limit, "{used_ns} ns in {passed:?}");
    let since = Instant::now();
    frontend.device_info().unwrap();
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
}

#[test]
fn vfio_frontend_that_breaks_the_framing_is_disconnected() {
    let held = Held::new();
    let _life = Life::new(&held);
    let header = Header::command(1, command::VERSION, 4);
    let long = Header { size: u32::MAX, ..header };
    for bad in [header.reply(0), long, Header { size: 3, ..header }, Header { flags: 2, ..header }]
    {
        let mut stream = UnixStream::connect(held.path(PORT)).unwrap();
        stream.write_all(&[bad.emit().as_slice(), &[0; 4]].concat()).unwrap();
        assert!(is_closed(&stream), "{bad:?}");
    }
    // The port serves the next frontend, also while no causewayd runs.
    drop(client(&held));
}

#[test]
fn vfio_frontend_with_wrong_descriptors_is_refused_while_causewayd_is_away() {
    let held = Held::new();
    let life = Life::new(&held);
    let mut frontend = client(&held);
    drop(life);
    let (no_memory, no_event) = (event(), memory(1));
    assert!(frontend.map(&map(0, 0, 1), Some(no_memory.as_fd())).is_err());
    assert!(frontend.set_interrupts(2, 0, &[no_event.as_fd()]).is_err());
    assert!(frontend.set_interrupts(9, 0, &[event().as_fd()]).is_err());
    let odd = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    assert!(frontend.map(&map(0, 0, 1), Some(odd.as_fd())).is_err());
    frontend.map(&map(0, 0, 1), Some(no_event.as_fd())).unwrap();
}

#[test]
fn vfio_frontend_that_reads_no_replies_is_disconnected() {
    let held = Held::new();
    let life = Life::new(&held);
    let mut frontend = client(&held);
    read(&mut frontend, 8);
    drop(life);
    let stream = UnixStream::from(frontend.as_fd().try_clone_to_owned().unwrap());
    let mut message = Header::command(7, command::REGION_READ, 16).emit();
    message.extend([[8, 0, 0, 0], [0; 4], [0; 4], [4, 0, 0, 0]].concat());
    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    let flooded = (0..1_000_000).try_for_each(|_| (&stream).write_all(&message));
    assert!(flooded.is_err());
    assert!(is_closed(&stream));
}

/// Runs `act` as causewayd on the connection of a frontend that has been set up before, and returns
/// the frontend.
fn next_causewayd(held: &Held, act: impl FnOnce(UnixStream)) -> VfioUserClient {
    let life = Life::new(held);
    let mut frontend = client(held);
    frontend.map(&map(0, 0, 1), Some(memory(1).as_fd())).unwrap();
    drop(life);
    let (listener, _control) = listen(held);
    act(listener.accept().unwrap().0);
    // The control connection closes here.
    frontend
}

#[test]
fn vfio_causewayd_that_refuses_the_setup_ends_the_frontend() {
    let held = Held::new();
    let frontend = next_causewayd(&held, |mut stream| {
        let (header, _) = receive(&stream).unwrap();
        stream.write_all(&header.refusal(95).emit()).unwrap();
        assert!(is_closed(&stream));
    });
    assert!(is_closed(&frontend));
}

#[test]
fn vfio_causewayd_with_an_invalid_reply_loses_its_connection() {
    let held = Held::new();
    let frontend = next_causewayd(&held, |mut stream| {
        answer_setup(&stream);
        stream.write_all(&Header::command(9, command::VERSION, 0).reply(0).emit()).unwrap();
        assert!(is_closed(&stream));
    });
    let life = Life::new(&held);
    life.await_event(Event::Resumed);
    drop(frontend);
}

#[test]
fn vfio_causewayd_that_closes_each_replay_ends_the_frontend() {
    let held = Held::new();
    let life = Life::new(&held);
    let frontend = client(&held);
    drop(life);
    let (listener, _control) = listen(&held);
    for _ in 0..TRIES_MAX {
        let (stream, _) = listener.accept().unwrap();
        receive(&stream).unwrap();
    }
    assert!(is_closed(&frontend));
}

#[test]
fn vfio_write_that_ends_several_causewayds_ends_the_frontend() {
    let held = Held::new();
    let life = Life::new(&held);
    let mut frontend = client(&held);
    drop(life);
    frontend.write(0, 8, &[1; 4]).unwrap();
    for _ in 0..DEATHS_MAX {
        let (listener, control) = listen(&held);
        let (stream, _) = listener.accept().unwrap();
        answer_setup(&stream);
        let (header, _) = receive(&stream).unwrap();
        assert_eq!(header.command, command::REGION_WRITE);
        drop((stream, control));
    }
    assert!(is_closed(&frontend));
}

/// Listens at the inner sockets of two ports, and registers both.
fn listen_twice(held: &Held) -> ([UnixListener; 2], Control) {
    let ports = ["p", "q"].map(|name| port(held, name));
    let listeners = ports.each_ref().map(|port| {
        let _ = std::fs::remove_file(&port.inner);
        UnixListener::bind(&port.inner).unwrap()
    });
    let mut control = held.client();
    ports.into_iter().for_each(|port| control.add(port).unwrap());
    (listeners, control)
}

/// Accepts the connection of a relay, whose frontend must stay connected.
fn accept(listener: &UnixListener) -> UnixStream {
    listener.set_nonblocking(true).unwrap();
    let since = std::time::Instant::now();
    loop {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).unwrap();
            return stream;
        }
        assert!(since.elapsed() < LIMIT, "the frontend was disconnected");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn vfio_write_of_a_frontend_is_kept_if_the_replay_of_another_ends_causewayds() {
    let held = Held::new();
    let (listeners, control) = listen_twice(&held);
    let version = [&[0, 0, 1, 0][..], b"{}\0"].concat();
    let request = [Header::command(1, command::VERSION, version.len()).emit(), version].concat();
    let [mut innocent, culprit] = ["p", "q"].map(|name| {
        let mut frontend = UnixStream::connect(held.path(name)).unwrap();
        frontend.write_all(&request).unwrap();
        frontend
    });
    let first = listeners.each_ref().map(accept);
    for (mut inner, frontend) in first.iter().zip([&innocent, &culprit]) {
        let (header, _) = receive(inner).unwrap();
        inner.write_all(&header.reply(0).emit()).unwrap();
        receive(frontend).unwrap();
    }
    drop((first, listeners, control));
    let access = RegionAccess { offset: 8, region: 0, count: 4 }.emit();
    let write = Header::command(2, command::REGION_WRITE, access.len() + 4).emit();
    innocent.write_all(&[write, access, vec![1; 4]].concat()).unwrap();
    receive(&innocent).unwrap();
    for _ in 0..2 * DEATHS_MAX {
        let ([own, other], control) = listen_twice(&held);
        let (own, other) = (accept(&own), accept(&other));
        // The replay of the other frontend begins, and does not end.
        receive(&other).unwrap();
        answer_setup(&own);
        let (header, _) = receive(&own).expect("the frontend is connected");
        assert_eq!(header.command, command::REGION_WRITE);
        drop((own, other, control));
    }
}
