//! A service unknown to the fabric, added by one registration: commands of its own type, a shard,
//! requests between two services, and the hooks of the control plane.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use causeway_attach::Model;
use causeway_fabric::{
    Capability, Context, Control, Controller, Fabric, Options, PortId, Service, ServiceObject,
    ServiceRegistration, ShardKey,
};
use causeway_model::port::VSOCK;
use causeway_model::{
    Answer, Command, CommandError, GroupView, KindDefinition, Name, PortKind, PortSpec,
    RequestDispatch, ServiceRequest, TypedRequest, VsockSpec,
};

/// A service whose shards each add numbers.
#[derive(Debug, Default)]
struct Adder(u64);

const ADDER: &str = "adder";
const ADDS_UP: Capability = Capability("adds up");

/// Adds a number to the sum of a shard.
#[derive(Debug)]
struct Add(u64);

impl TypedRequest for Add {
    type Answer = u64;
}

impl Service for Adder {
    fn model(&self, _: &PortSpec) -> Model {
        Model::new(0, 0, Vec::new())
    }

    fn added(&mut self, _: &mut Context<'_>, _: PortId) -> Result<(), CommandError> {
        Err(CommandError::Invalid("the service has no ports".into()))
    }

    fn removed(&mut self, _: &mut Context<'_>, _: PortId) {}

    fn counters(&self, _: PortId) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    fn ask(&mut self, _: &mut Context<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request).on(|Add(number)| {
            let sum = self.0.checked_add(number);
            self.0 = sum.ok_or_else(|| CommandError::Full("the sum is too large".into()))?;
            Ok(self.0)
        })
    }
}

/// Counts the shards that were opened, and adds 1 to each.
#[derive(Debug, Default)]
struct AdderController {
    opened: usize,
}

/// Requests the number of opened shards.
#[derive(Debug, Clone)]
struct Opened;

impl TypedRequest for Opened {
    type Answer = usize;
}

impl Controller for AdderController {
    fn ask(&mut self, _: &mut Control<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request).on(|Opened| Ok(self.opened))
    }

    fn shard_opened(
        &mut self,
        control: &mut Control<'_>,
        shard: &ShardKey,
    ) -> Result<(), CommandError> {
        self.opened += 1;
        control.ask(shard, Add(1)).map(drop)
    }
}

/// A second service, which has accounts, and finds the first by its capability.
#[derive(Debug, Default)]
struct Accounts(BTreeMap<Name, Name>);

/// Opens an account in a group.
#[derive(Debug)]
struct Open {
    name: Name,
    group: Name,
}

impl TypedRequest for Open {
    type Answer = usize;
}

/// Pays into an account.
#[derive(Debug)]
struct Pay(Name, u64);

impl TypedRequest for Pay {
    type Answer = u64;
}

/// Closes an account.
#[derive(Debug)]
struct Close(Name);

impl TypedRequest for Close {
    type Answer = ();
}

fn shard_in(control: &Control<'_>, group: &Name) -> Result<ShardKey, CommandError> {
    Ok(ShardKey::new(group, control.provider(ADDS_UP)?))
}

impl Controller for Accounts {
    fn ask(&mut self, control: &mut Control<'_>, request: ServiceRequest) -> RequestDispatch {
        let missing =
            |name: &Name| CommandError::NotFound { what: "account", name: name.to_string() };
        RequestDispatch::new(request)
            .on(|Open { name, group }| {
                control.group(&group)?;
                control.hold(&shard_in(control, &group)?)?;
                self.0.insert(name, group);
                Ok(control.consult(&Opened)?.into_iter().sum())
            })
            .on(|Pay(name, amount)| {
                let group = self.0.get(&name).ok_or_else(|| missing(&name))?;
                control.ask(&shard_in(control, group)?, Add(amount))
            })
            .on(|Close(name)| {
                let group = self.0.remove(&name).ok_or_else(|| missing(&name))?;
                let shard = shard_in(control, &group)?;
                control.release(&shard);
                Ok(())
            })
    }

    fn object_in(&self, group: &Name) -> Option<ServiceObject> {
        let (name, _) = self.0.iter().find(|(_, of)| *of == group)?;
        Some(ServiceObject { kind: "account", name: name.clone() })
    }

    fn extend_group(&self, view: &mut GroupView) {
        let of = self.0.iter().filter(|(_, group)| **group == view.name);
        view.links.extend(of.map(|(name, _)| name.clone()));
    }
}

const SERVICES: [ServiceRegistration; 2] = [
    ServiceRegistration::new("accounts", || Box::<Adder>::default())
        .with_controller(|| Box::<Accounts>::default()),
    ServiceRegistration::new(ADDER, || Box::<Adder>::default())
        .with_controller(|| Box::<AdderController>::default())
        .with_capabilities(&[ADDS_UP]),
];

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn started(services: &[ServiceRegistration]) -> Fabric {
    let fabric = Fabric::start(services, Options { dispatchers: 2, ..Options::default() }).unwrap();
    for group in ["red", "blue"] {
        fabric.handle().call(Command::GroupAdd(name(group).into())).unwrap();
    }
    fabric
}

fn shards(fabric: &Fabric) -> Vec<(String, Cow<'static, str>)> {
    let answer = fabric.handle().call(Command::DispatcherList).unwrap();
    let Answer::Dispatchers(all) = answer else { panic!("{answer:?}") };
    let shards = all.into_iter().flat_map(|dispatcher| dispatcher.shards);
    let mut shards: Vec<_> = shards.map(|shard| (shard.group.to_string(), shard.service)).collect();
    shards.sort();
    shards
}

fn open(fabric: &Fabric, account: &str, group: &str) -> Result<usize, CommandError> {
    fabric.handle().ask(Open { name: name(account), group: name(group) })
}

#[test]
fn registration_adds_commands_shards_and_requests_between_services() {
    let fabric = started(&SERVICES);
    let handle = fabric.handle();
    assert_eq!(open(&fabric, "a", "red").unwrap(), 1, "the other service saw its shard open");
    assert_eq!(open(&fabric, "b", "red").unwrap(), 1, "both accounts share it");
    assert_eq!(open(&fabric, "c", "blue").unwrap(), 2);
    assert_eq!(shards(&fabric), [("blue".into(), ADDER.into()), ("red".into(), ADDER.into())]);
    assert_eq!(handle.ask(Pay(name("a"), 10)).unwrap(), 11, "the shard began with one");
    assert_eq!(handle.ask(Pay(name("b"), 5)).unwrap(), 16);
    assert_eq!(handle.ask(Pay(name("c"), 5)).unwrap(), 6, "groups share nothing");
    let full = handle.ask(Pay(name("c"), u64::MAX)).unwrap_err();
    assert_eq!(full, CommandError::Full("the sum is too large".into()));
    assert!(matches!(open(&fabric, "d", "green"), Err(CommandError::NotFound { .. })));
}

#[test]
fn registration_keeps_groups_and_shards_while_objects_need_them() {
    let fabric = started(&SERVICES);
    let handle = fabric.handle();
    open(&fabric, "a", "red").unwrap();
    open(&fabric, "b", "red").unwrap();
    let Ok(Answer::Groups(groups)) = handle.call(Command::GroupList) else { panic!() };
    assert_eq!(groups[0].links, [name("a"), name("b")]);
    let refused = handle.call(Command::GroupDel(name("red"))).unwrap_err().to_string();
    assert_eq!(refused, "group red still has account a; delete its accounts first");
    handle.ask(Close(name("a"))).unwrap();
    assert_eq!(shards(&fabric).len(), 1, "the other account holds the shard");
    handle.ask(Close(name("b"))).unwrap();
    assert_eq!(shards(&fabric), []);
    handle.call(Command::GroupDel(name("red"))).unwrap();
}

#[test]
fn registration_that_is_absent_is_reported_to_the_caller() {
    let [accounts, adder] = SERVICES;
    let without = started(&[accounts]);
    let refused = open(&without, "a", "red").unwrap_err().to_string();
    assert_eq!(refused, "this daemon has no service that adds up");
    let without = started(&[adder]);
    let refused = open(&without, "a", "red").unwrap_err().to_string();
    assert!(refused.starts_with("no service answers ") && refused.ends_with("::Open"), "{refused}");
}

/// Ports whose removal a [`Keeper`] saw.
static REMOVED: AtomicUsize = AtomicUsize::new(0);

/// A service with ports, which panics at a request.
#[derive(Debug)]
struct Keeper;

const KINDS: &[&KindDefinition] = &[&causeway_model::port::VSOCK];
const KEEPER: ServiceRegistration = ServiceRegistration::new("keeper", || Box::new(Keeper))
    .with_kinds(KINDS)
    .with_controller(|| Box::new(KeeperController));

/// Makes the shard of a group panic.
#[derive(Debug)]
struct Panic(Name);

impl TypedRequest for Panic {
    type Answer = ();
}

impl Service for Keeper {
    fn model(&self, _: &PortSpec) -> Model {
        Model::new(1, 0, Vec::new())
    }

    fn added(&mut self, _: &mut Context<'_>, _: PortId) -> Result<(), CommandError> {
        Ok(())
    }

    fn removed(&mut self, _: &mut Context<'_>, _: PortId) {
        REMOVED.fetch_add(1, Ordering::SeqCst);
    }

    fn counters(&self, _: PortId) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    fn ask(&mut self, _: &mut Context<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request).on(|Panic(group)| panic!("the test ends group {group}"))
    }
}

#[derive(Debug)]
struct KeeperController;

impl Controller for KeeperController {
    fn ask(&mut self, control: &mut Control<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request)
            .on(|Panic(group)| control.ask(&ShardKey::new(&group, "keeper"), Panic(group.clone())))
    }
}

/// Starts two dispatchers, each with a group that has a port.
fn with_ports(dir: &std::path::Path) -> Fabric {
    let fabric = started(&[KEEPER]);
    for (group, cid) in [("red", 3), ("blue", 4)] {
        let spec = PortSpec {
            name: name(group),
            group: name(group),
            socket: dir.join(group),
            memory_max: None,
            access: Default::default(),
            kind: PortKind::of(VsockSpec {
                cid,
                guest_cid: None,
                host_socket: None,
                processes: false,
            }),
        };
        fabric.handle().call(Command::PortAdd(spec)).unwrap();
    }
    fabric
}

#[test]
fn dispatcher_that_panics_ends_all_and_closes_no_port() {
    let dir = std::env::temp_dir().join(format!("causeway-registration-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let stopped = with_ports(&dir);
    stopped.handle().stop();
    stopped.wait().unwrap();
    assert_eq!(REMOVED.swap(0, Ordering::SeqCst), 2, "a stop closes the ports");
    let fabric = with_ports(&dir);
    let handle = fabric.handle();
    let refused = handle.ask(Panic(name("red"))).unwrap_err().to_string();
    assert!(refused.contains("has stopped"), "{refused}");
    let ended = fabric.wait().unwrap_err().to_string();
    let left = std::fs::read_dir(&dir).unwrap().count();
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(ended, "a dispatcher panicked");
    assert_eq!((REMOVED.load(Ordering::SeqCst), left), (0, 2), "the ports are as in a crash");
}

/// A service with ports, and with a controller that cannot remove what it knows of a port.
#[derive(Debug, Default)]
struct Forgetless;

impl Service for Forgetless {
    fn model(&self, _: &PortSpec) -> Model {
        Model::new(0, 0, Vec::new())
    }

    fn added(&mut self, _: &mut Context<'_>, _: PortId) -> Result<(), CommandError> {
        Ok(())
    }

    fn removed(&mut self, _: &mut Context<'_>, _: PortId) {}

    fn counters(&self, _: PortId) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

impl Controller for Forgetless {
    fn port_deleted(&mut self, _: &mut Control<'_>, _: &PortSpec) -> Result<(), CommandError> {
        Err(CommandError::Host("a dispatcher does not answer".into()))
    }
}

static FORGETLESS_KINDS: [&KindDefinition; 1] = [&VSOCK];

const FORGETLESS: ServiceRegistration =
    ServiceRegistration::new("forgetless", || Box::<Forgetless>::default())
        .with_controller(|| Box::<Forgetless>::default())
        .with_kinds(&FORGETLESS_KINDS);

#[test]
fn registration_deletes_a_port_of_which_a_controller_keeps_objects() {
    let fabric = started(&[FORGETLESS]);
    let path =
        std::env::temp_dir().join(format!("causeway-registration-port-{}", std::process::id()));
    let spec = PortSpec {
        name: name("a"),
        group: name("red"),
        socket: path,
        memory_max: None,
        access: Default::default(),
        kind: PortKind::of(VsockSpec {
            cid: 3,
            guest_cid: None,
            host_socket: None,
            processes: false,
        }),
    };
    fabric.handle().call(Command::PortAdd(spec)).unwrap();
    let deleted = fabric.handle().call(Command::PortDel(name("a")));
    assert!(matches!(deleted, Ok(Answer::Done)), "{deleted:?}");
    let Ok(Answer::Ports(ports)) = fabric.handle().call(Command::PortList) else { panic!() };
    assert!(ports.is_empty(), "{ports:?}");
}
