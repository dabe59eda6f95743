//! Checks `causeway-ibverbs` on the adapter of a guest: of two queue pairs of this process,
//! connected with each other over the adapter's own GID, the first sends 200 messages to the second
//! with completion events; memory is registered and released; and the kernel accepts a connection
//! to the reserved queue pair number of the daemon, over which nothing is sent. The exchange runs
//! over each RoCE v2 GID of port 1 of the first adapter. 10 s without a completion fail the check,
//! with events or without. The test of messages in guests (`vm/tests/mx.rs`) puts the program into
//! the images of its guests. The last line is "passed", or "failed" with the reason and exit status
//! 1.

use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_ibverbs::{
    Adapter, Completion, CompletionQueue, ProtectionDomain, QueuePair, adapters,
};
use causeway_memory::{Mapping, View};
use causeway_wire::session::SERVICE_QPN;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Messages of an exchange.
const MESSAGES: u64 = 200;
/// Receives that are posted ahead.
const DEPTH: u64 = 16;
/// Bytes of a message.
const BYTES: usize = 160;
/// Time limit of a completion.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    match check() {
        Ok(()) => {
            println!("passed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let mut text = error.to_string();
            let mut cause = error.source();
            while let Some(of) = cause {
                text = format!("{text}: {of}");
                cause = of.source();
            }
            println!("failed: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Returns an error with this text unless the condition holds.
fn expect(holds: bool, text: impl Into<String>) -> Result<()> {
    if holds { Ok(()) } else { Err(text.into().into()) }
}

fn check() -> Result<()> {
    let name = adapters()?.into_iter().next().ok_or("no adapter")?;
    let adapter = Adapter::open(&name)?;
    let port = adapter.port(1)?;
    expect(port.is_active, "the port is not active")?;
    let domain = ProtectionDomain::new(&adapter)?;
    let gids = adapter.roce_v2_gids(1)?;
    expect(!gids.is_empty(), "no RoCE v2 GID")?;
    for gid in gids {
        println!("GID {} {:02x?}", gid.index, gid.bytes);
        let completions = CompletionQueue::new(&adapter, 128)?;
        let new = || QueuePair::new(&domain, &completions, 2 * DEPTH as u32);
        let (from, to) = (new()?, new()?);
        from.connect(&port, &gid, to.number())?;
        to.initialise(&port)?;
        exchange(&domain, &completions, (&from, &to), || {
            to.connect_to_own(&port, &gid, from.number())
        })?;
        let service = new()?;
        service.connect(&port, &gid, SERVICE_QPN)?;
        println!("connected to queue pair {SERVICE_QPN:#x}");
    }
    register(&domain)
}

/// Returns the next completions; waits for events while there are none.
fn await_completions(queue: &CompletionQueue) -> Result<Vec<Completion>> {
    let start = Instant::now();
    let mut all = Vec::with_capacity(16);
    loop {
        if queue.poll(&mut all)? > 0 {
            return Ok(all);
        }
        queue.take_event();
        queue.arm()?;
        if queue.poll(&mut all)? > 0 {
            return Ok(all);
        }
        let left = PATIENCE.saturating_sub(start.elapsed());
        expect(!left.is_zero(), "no completion in time")?;
        let limit = rustix::event::Timespec::try_from(left)?;
        let mut fds = [rustix::event::PollFd::new(queue, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&limit))?;
    }
}

/// Returns the bytes of a message.
fn content(number: u64) -> [u8; BYTES] {
    std::array::from_fn(|at| (number as usize).wrapping_mul(31).wrapping_add(at) as u8)
}

/// Sends numbered messages, and checks their content and their immediate data.
fn exchange(
    domain: &ProtectionDomain,
    queue: &CompletionQueue,
    (from, to): (&QueuePair, &QueuePair),
    connect: impl FnOnce() -> std::result::Result<(), causeway_ibverbs::Error>,
) -> Result<()> {
    let len = BYTES * DEPTH as usize;
    let memory = View::new(Arc::new(Mapping::private(len as u64)?), 0, len)?;
    let memory = domain.register(memory)?;
    let place = |number: u64| (number % DEPTH) as usize * BYTES;
    for number in 0..DEPTH {
        to.receive(number, &memory, place(number), BYTES)?;
    }
    connect()?;
    let (mut sent, mut received, mut events) = (0, 0, 0);
    while received < MESSAGES {
        if sent < MESSAGES && sent < received + DEPTH {
            // Some messages are doorbells: no bytes, and immediate data.
            let doorbell = (sent % 5 == 4).then_some(sent as u32);
            let bytes = content(sent);
            from.send(1 << 32 | sent, if doorbell.is_some() { &[] } else { &bytes }, doorbell)?;
            sent += 1;
            continue;
        }
        events += 1;
        for completion in await_completions(queue)? {
            expect(completion.error().is_none(), format!("{completion:?}"))?;
            if !completion.is_receive {
                continue;
            }
            expect(completion.id == received, format!("out of order: {completion:?}"))?;
            let view = memory.memory().ok_or("the registration holds no memory")?;
            let bytes = view.read::<BYTES>(place(received))?;
            match completion.immediate {
                Some(number) => {
                    expect(u64::from(number) == received && completion.len == 0, "imm")?
                }
                None => expect(bytes == content(received), format!("content of {received}"))?,
            }
            received += 1;
            if received + DEPTH <= MESSAGES {
                to.receive(received + DEPTH - 1, &memory, place(received - 1), BYTES)?;
            }
        }
    }
    println!("{MESSAGES} messages in {events} waits, descriptor {:?}", queue.as_fd());
    from.end()?;
    // A closed connection reports the receives that are left, or the next send.
    from.send(0, b"late", None)?;
    let late = loop {
        let failed = await_completions(queue)?.into_iter().find_map(|of| of.error());
        if let Some(text) = failed {
            break text;
        }
    };
    println!("after the end: {late}");
    Ok(())
}

/// Registers and releases the same 4 MiB twenty times.
fn register(domain: &ProtectionDomain) -> Result<()> {
    let len = 4 << 20;
    let memory = View::new(Arc::new(Mapping::private(len)?), 0, len as usize)?;
    let mut keys = Vec::new();
    for _ in 0..20 {
        let registered = domain.register(memory.clone())?;
        expect(registered.address() == memory.as_ptr() as u64, "address")?;
        keys.push(registered.remote_key());
    }
    println!("20 registrations of 4 MiB, first keys {:x?}", &keys[..3]);
    Ok(())
}
