//! A link whose far end is Open vSwitch with its user-space datapath.

mod common;

use causeway_guest_tool::limits::STREAM_PORT;
use causeway_vm::daemon::Member;
use causeway_vm::process::Process;
use causeway_vm::{Daemon, Guest, Machine, Namespace, RunDir, image, process, traffic};
use common::LIMIT;
use common::hosts::{Native, TestHosts, address, counter, ping, show, wait};
use common::station::Station;
use std::path::Path;
use std::process::{Command, Stdio};

const VNI: u32 = 42;
/// Largest packet in a VXLAN datagram of 1500 bytes.
const MTU: u16 = 1450;
const LONGEST: usize = MTU as usize - 28;
const SWITCH_IP: [u8; 4] = [10, 77, 0, 200];
const SWITCH_IP_TEXT: &str = "10.77.0.200";
const SWITCH: &str = "/usr/lib/openvswitch-switch/ovs-vswitchd";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// A separate switch in a namespace, with all its files in one folder. Bridge `under` has the
/// host's cable and address, bridge `over` the tunnel and an address in it.
struct Switch<'a> {
    // Drop order: the switch ends before its database.
    _switch: Process,
    _database: Process,
    folder: RunDir,
    net: &'a Namespace,
}

impl<'a> Switch<'a> {
    /// Starts the switch on a host whose cable has `address`, with a tunnel to `remote`.
    fn start(net: &'a Namespace, address: &str, remote: &str) -> Self {
        let folder = RunDir::new().unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        let command = |program: &str| own_files(net.command(program), folder.path());
        process::output(command("ovsdb-tool").args(["create", &file("db"), SCHEMA])).unwrap();
        let mut database = command("ovsdb-server");
        database.args([&file("db"), &format!("--remote=punix:{}", file("db.sock"))]);
        let database = start("ovsdb-server", database, &file("db.ctl"));
        wait(|| folder.path().join("db.sock").exists(), || "no database".to_owned());
        let mut switch = command(SWITCH);
        switch.arg(format!("unix:{}", file("db.sock")));
        let switch = start("ovs-vswitchd", switch, &file("switch.ctl"));
        let switch = Self { _switch: switch, _database: database, folder, net };
        switch.set("init");
        net.ip("addr flush dev cable0").unwrap();
        switch
            .set("add-br under -- set bridge under datapath_type=netdev -- add-port under cable0");
        switch.set("add-br over -- set bridge over datapath_type=netdev");
        let tunnel = "add-port over tunnel -- set interface tunnel type=vxlan";
        switch.set(&format!("{tunnel} options:remote_ip={remote} options:key={VNI}"));
        let lines = [
            format!("addr add {address}/24 dev under"),
            "link set under up".to_owned(),
            format!("addr add {SWITCH_IP_TEXT}/24 dev over"),
            format!("link set over up mtu {MTU}"),
        ];
        net.ip_each(&lines).unwrap();
        switch
    }

    /// Runs `ovs-vsctl` with these arguments.
    fn set(&self, words: &str) {
        let mut command = own_files(self.net.command("ovs-vsctl"), self.folder.path());
        let database = format!("--db=unix:{}", self.folder.path().join("db.sock").display());
        command.args([&database, "-t", "30"]).args(words.split_whitespace());
        process::output(&mut command).unwrap();
    }
}

fn own_files(mut command: Command, folder: &Path) -> Command {
    for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(variable, folder);
    }
    command
}

/// Starts a daemon of the switch, controlled through the socket `control`.
fn start(name: &str, mut command: Command, control: &str) -> Process {
    command.args([&format!("--unixctl={control}"), "-vconsole:off"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Process::start(name, command).unwrap()
}

/// A causewayd on host 0 and the switch on host 1.
struct Scene {
    guest: Member,
    daemon: Daemon,
    test_hosts: TestHosts,
}

impl Scene {
    fn new() -> Option<Self> {
        if !Path::new(SWITCH).exists() || !Path::new(SCHEMA).exists() {
            eprintln!("skipped: Open vSwitch is not installed (scripts/setup.sh test)");
            return None;
        }
        let test_hosts = TestHosts::new(&[1500])?;
        // As a physical NIC would: Open vSwitch in user space drops datagrams with an incomplete
        // checksum, and a veth pair leaves the checksum incomplete.
        let mut sums = test_hosts.nets[0].command("/usr/sbin/ethtool");
        process::output(sums.args(["-K", "cable0", "tx", "off"])).unwrap();
        let mut guest = Member::new("guest", "blue", 1);
        guest.mtu = MTU;
        let link = test_hosts.link(0, "to-ovs", "vxlan", 0, &format!("vni = {VNI}"));
        let daemon = test_hosts.daemon(0, std::slice::from_ref(&guest), &link);
        assert_eq!(show(&daemon, "to-ovs")["state"], "open");
        Some(Self { guest, daemon, test_hosts })
    }

    fn switch(&self) -> Switch<'_> {
        Switch::start(&self.test_hosts.nets[1], &address(1, 0), &address(0, 0))
    }
}

#[test]
fn vxlan_native_port_and_open_vswitch_ping_each_other() {
    let Some(scene) = Scene::new() else { return };
    let switch = scene.switch();
    let (net, own) = (&scene.test_hosts.nets[1], scene.guest.ip());
    let mut station = Station::attach(&scene.daemon, &scene.guest);
    // Started by this station, then by the switch, whose ARP entry was removed; up to the largest
    // payload.
    for bytes in [0, 56, LONGEST] {
        station.ping(SWITCH_IP, bytes);
    }
    net.ip("neigh flush dev over").unwrap();
    let answers = |bytes| process::output(&mut ping(net, &own, bytes));
    for said in station.while_answering(|| [56, LONGEST].map(answers)) {
        assert!(said.unwrap().contains("3 packets received"));
    }
    // Frames of another VNI are dropped.
    let wrong = || counter(&scene.daemon, "to-ovs", "socket_drop_wrong_vni_total");
    assert_eq!(wrong(), 0);
    switch.set("set interface tunnel options:key=43");
    net.ip("neigh flush dev over").unwrap();
    let mut command = net.command(image::busybox().unwrap());
    command.args(["ping", "-c", "2", "-w", "2", "-q", &own]);
    let said = station.while_answering(|| process::output(&mut command));
    assert!(said.is_err(), "a frame of network 43 was answered: {said:?}");
    wait(|| wrong() > 0, || format!("{:#}", show(&scene.daemon, "to-ovs")));
    switch.set(&format!("set interface tunnel options:key={VNI}"));
    station.ping(SWITCH_IP, 56);
}

#[test]
fn vxlan_virtual_machine_and_open_vswitch_stream_both_ways() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.switch();
    let spec = scene.daemon.guest(&scene.guest);
    let guest = Guest::boot_all(&Machine::qemu().unwrap(), vec![spec]).unwrap().remove(0);
    let far = Native::serve(&scene.test_hosts.nets[1]);
    let ping = traffic::ping(&guest, SWITCH_IP_TEXT, 10).unwrap();
    assert_eq!((ping.sent, ping.received), (10, 10));
    let target = format!("tcp:{SWITCH_IP_TEXT}:{STREAM_PORT}").parse().unwrap();
    traffic::stream(&guest, &target, 65_536, 8 << 20, LIMIT).unwrap();
    far.stream(&scene.guest.ip(), 8 << 20).unwrap();
}
