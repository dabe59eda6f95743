//! The printed XML against the schema of the installed libvirt, and started by it.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{ControlSocket, Dir, model::Model, serve};
use causeway_daemon::services::SERVICES;
use causeway_fabric::{Fabric, Options};
use serde_json::Value;

/// The schema of a domain, from the packages of libvirt.
const SCHEMA: &str = "/usr/share/libvirt/schemas/domain.rng";
/// Longest time for libvirt to start and to create a domain, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// The user without privileges (nobody) as which the test runs libvirt if it is root itself: as
/// root, libvirt would change the configuration of the host.
const NOBODY: u32 = 65_534;

/// Runs `causeway` with these words and returns its output.
#[track_caller]
fn causeway(control: &ControlSocket, words: &str) -> String {
    let mut tool = Command::new(env!("CARGO_BIN_EXE_causeway"));
    tool.env("CAUSEWAY_CONTROL", &control.socket).args(words.split_whitespace());
    let output = tool.output().unwrap();
    assert!(output.status.success(), "{words}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(control: &ControlSocket, words: &str) -> Value {
    serde_json::from_str(&causeway(control, words)).unwrap()
}

/// Returns an emulated domain with the elements that `causeway … --for libvirt -j` prints.
fn domain(value: &Value) -> String {
    let elements = value["elements"].as_array().unwrap();
    // An element with a condition replaces the override of a domain with KVM.
    let emulated = elements.iter().any(|element| !element["condition"].is_null());
    let is_wanted = |element: &Value| {
        let is_override = element["xml"].as_str().unwrap().starts_with("<qemu:override>");
        !is_override || emulated != element["condition"].is_null()
    };
    let of = |parent: &str| -> String {
        let wanted = elements.iter().filter(|element| element["parent"] == parent);
        let wanted = wanted.filter(|element| is_wanted(element));
        wanted.map(|element| element["xml"].as_str().unwrap()).collect()
    };
    let namespace = elements.iter().find_map(|element| element["namespace"].as_str());
    format!(
        "<domain type='qemu' {}><name>guest</name>\
         <os><type arch='x86_64' machine='q35'>hvm</type></os>\
         <devices>{}</devices>{}</domain>",
        namespace.unwrap_or_default(),
        of("domain/devices"),
        of("domain"),
    )
}

/// Returns the faults of a domain by the schema.
fn faults(domain: &str) -> Option<String> {
    let dir = Dir::new();
    let file = dir.file("domain.xml");
    std::fs::write(&file, domain).unwrap();
    let mut xmllint = Command::new("xmllint");
    let output = xmllint.args(["--noout", "--relaxng", SCHEMA]).arg(&file).output().unwrap();
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn vm_show_prints_xml_that_the_schema_of_libvirt_accepts() {
    let xmllint = Command::new("xmllint").arg("--version").output();
    if xmllint.is_err() || !Path::new(SCHEMA).exists() {
        eprintln!("skipped: xmllint or {SCHEMA} is missing (libxml2-utils, libvirt0)");
        return;
    }
    let control = serve(Arc::new(Model::default()));
    for words in [
        "group add blue",
        "port add vm1-net --kind net --group blue --mtu 9000",
        "port add vm1-net2 --kind net --group blue --queue-pairs 4 --offloads xdp",
        "port add vm1-vsock --kind vsock --group blue --cid 3",
        "port add vm1-rdma --kind hca --group blue",
        "port add odd --kind net --group blue --socket /tmp/a'b<&>\".sock",
    ] {
        causeway(&control, words);
    }
    for words in [
        "vm show vm1 --for libvirt --memory 2G -j",
        "port show vm1-net --for libvirt -j --memory 512M",
        "port show odd --for libvirt --memory 1G -j",
    ] {
        let domain = domain(&json(&control, words));
        assert_eq!(faults(&domain), None, "{words}: {domain}");
        let wrong = domain.replace("mode='client'", "mode='neither'");
        assert!(faults(&wrong).is_some(), "the schema is checked");
    }
}

/// A libvirt of a user without privileges, with all its files in a directory.
struct Libvirt {
    dir: Dir,
    daemon: Child,
}

impl Libvirt {
    /// Starts the daemon.
    fn start() -> Self {
        let dir = Dir::new();
        let config = dir.file("home/.config/libvirt");
        std::fs::create_dir_all(&config).unwrap();
        std::fs::create_dir(dir.file("run")).unwrap();
        // virtlogd would outlive the test.
        std::fs::write(config.join("qemu.conf"), "stdio_handler = \"file\"\n").unwrap();
        std::fs::set_permissions(dir.file("run"), Permissions::from_mode(0o700)).unwrap();
        if rustix::process::geteuid().is_root() {
            for path in ["", "run", "home", "home/.config", "home/.config/libvirt"] {
                chown(dir.file(path), Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        let log = std::fs::File::create(dir.file("log")).unwrap();
        let mut libvirtd = command(&dir, "libvirtd");
        // Without clients, the daemon ends by itself: a killed test leaves no process.
        libvirtd.args(["--timeout", "60"]).stdout(Stdio::null()).stderr(log);
        Self { daemon: libvirtd.spawn().unwrap(), dir }
    }

    /// Runs a command of `virsh` and returns whether it succeeded, with its error.
    fn virsh(&self, words: &[&str]) -> Result<(), String> {
        let mut virsh = command(&self.dir, "virsh");
        let output = virsh.args(["-q", "-c", "qemu:///session"]).args(words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(error) }
    }
}

impl Drop for Libvirt {
    fn drop(&mut self) {
        // Without a domain, the command has nothing to end.
        let _ = self.virsh(&["destroy", "guest"]);
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Returns a command of the unprivileged user whose files are in a directory.
fn command(dir: &Dir, program: &str) -> Command {
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        let nobody = NOBODY.to_string();
        command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups", program]);
        command
    } else {
        Command::new(program)
    };
    command.current_dir(&dir.0).env("HOME", dir.file("home"));
    command.env("XDG_RUNTIME_DIR", dir.file("run")).env_remove("XDG_CONFIG_HOME");
    command.env_remove("XDG_CACHE_HOME").stdin(Stdio::null());
    command
}

#[test]
fn vm_show_prints_xml_that_starts_a_domain_of_libvirt() {
    let drivers = Path::new("/usr/lib/x86_64-linux-gnu/libvirt/connection-driver");
    let programs = ["libvirtd", "virsh", "qemu-system-x86_64"];
    let is_there = |program: &&str| Command::new(program).arg("--version").output().is_ok();
    if !programs.iter().all(is_there) || !drivers.join("libvirt_driver_qemu.so").exists() {
        eprintln!("skipped: {programs:?} or libvirt's driver of QEMU is missing");
        return;
    }
    let fabric = Fabric::start(SERVICES, Options::default()).unwrap();
    let control = serve(Arc::new(fabric.handle()));
    for words in [
        "group add blue",
        "port add vm1-net --kind net --group blue --mtu 9000",
        "port add vm1-net2 --kind net --group blue --queue-pairs 2",
        "port add vm1-vsock --kind vsock --group blue --cid 3",
    ] {
        causeway(&control, words);
    }
    let ports = json(&control, "vm show vm1 -j")["ports"].clone();
    for port in ports.as_array().unwrap() {
        let socket = port["socket"].as_str().unwrap();
        std::fs::set_permissions(socket, Permissions::from_mode(0o666)).unwrap();
    }
    let libvirt = Libvirt::start();
    let file = libvirt.dir.file("domain.xml");
    let domain = domain(&json(&control, "vm show vm1 --for libvirt --memory 192M -j"));
    std::fs::write(&file, &domain).unwrap();
    let since = Instant::now();
    // The daemon listens some time after its start.
    while let Err(error) = libvirt.virsh(&["list"]) {
        assert!(since.elapsed() < LIMIT, "{error}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let created = libvirt.virsh(&["create", "--paused", file.to_str().unwrap()]);
    assert_eq!(created, Ok(()), "{domain}");
    loop {
        let shown = json(&control, "vm show vm1 -j");
        let ports = shown["ports"].as_array().unwrap();
        assert!(ports.iter().all(|port| port["faults_total"] == 0), "{shown}");
        if ports.iter().all(|port| port["state"] == "connected") {
            break;
        }
        assert!(since.elapsed() < LIMIT, "{shown}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(libvirt.virsh(&["destroy", "guest"]), Ok(()));
}
