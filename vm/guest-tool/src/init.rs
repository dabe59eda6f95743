//! The guest's first process: mounts file systems, loads modules, starts services, then the agent.
//!
//! Each step that fails is a *trouble* in the agent's first line, and the start goes on: the host
//! decides whether the guest is usable. Modules are loaded in the order of [`MODULES`], without
//! parameters; a missing list counts as empty. The services are traffic servers ([`serve`]) on port
//! 7001 of TCP and AF_VSOCK, and port 7002 for SEQPACKET. Without the serial line of the control
//! channel, or after its end, the guest stays up and the host gives it up by its own time limit.
//! [`main`] runs as process 1 and never returns; orphans are not reaped. Shells and addresses of
//! interfaces are not set up here: the host does that by commands.

use crate::agent;
use crate::limits::{MESSAGE_PORT, STREAM_PORT};
use crate::protocol::{Hello, Line};
use crate::serve;
use crate::transport::{CID_ANY, Target};
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot, uname};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// File with the modules to load, in order, a path on each line.
pub const MODULES: &str = "/etc/modules";
/// The serial line that carries the control channel.
const CONTROL: &str = "/dev/ttyS1";

/// Brings the guest up and serves the host; never returns.
pub fn main() -> ! {
    let mut troubles = Vec::new();
    mounts(&mut troubles);
    let modules = load_modules(&mut troubles);
    services(&mut troubles);
    for trouble in &troubles {
        eprintln!("causeway-guest: {trouble}");
    }
    let kernel = uname().release().to_string_lossy().into_owned();
    println!("causeway-guest: up on {kernel}");
    if let Err(e) = control(Hello { kernel, modules, troubles }) {
        eprintln!("causeway-guest: control channel: {e}");
    }
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

fn mounts(troubles: &mut Vec<String>) {
    for (kind, at) in
        [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/tmp")]
    {
        let done = fs::create_dir_all(at)
            .and_then(|()| Ok(mount(kind, at, kind, MountFlags::empty(), None)?));
        if let Err(e) = done {
            troubles.push(format!("mount {kind} on {at}: {e}"));
        }
    }
}

fn load_modules(troubles: &mut Vec<String>) -> usize {
    let list = fs::read_to_string(MODULES).unwrap_or_default();
    let mut loaded = 0;
    for path in list.lines().filter(|l| !l.is_empty()) {
        match load_module(Path::new(path)) {
            Ok(()) => loaded += 1,
            Err(e) => troubles.push(format!("load {path}: {e}")),
        }
    }
    loaded
}

fn load_module(path: &Path) -> io::Result<()> {
    Ok(finit_module(File::open(path)?, c"", 0)?)
}

fn services(troubles: &mut Vec<String>) {
    let port = u16::try_from(STREAM_PORT).unwrap_or(0);
    for target in [
        Target::Tcp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))),
        Target::Vsock(CID_ANY, STREAM_PORT),
        Target::SeqPacket(CID_ANY, MESSAGE_PORT),
    ] {
        if let Err(e) = serve::spawn(target.clone()) {
            troubles.push(format!("listen on {target}: {e}"));
        }
    }
}

fn control(hello: Hello) -> io::Result<()> {
    let mut channel = OpenOptions::new().read(true).write(true).open(CONTROL)?;
    let mut mode = tcgetattr(&channel)?;
    mode.make_raw();
    tcsetattr(&channel, OptionalActions::Now, &mode)?;
    agent::send(&mut channel, &Line::Hello(hello))?;
    agent::serve(&channel, restart)
}

fn restart() {
    if let Err(e) = reboot(RebootCommand::Restart) {
        eprintln!("causeway-guest: restart: {e}");
    }
}
