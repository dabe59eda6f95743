//! When the dispatcher yields the processor: a service with scripted sources records each poll.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::dispatch_mode::PollConfig;
use crate::limits::{QUICK_NS, QUICK_RESULTS, SHARE_PERIOD_NS};
use crate::port::PortId;
use crate::service::{Context, Progress, Service, SourceProgress};
use crate::shard::{Shard, ShardKey};
use causeway_model::{CommandError, Name, PortSpec, RequestDispatch, ServiceRequest};

/// An event of the test, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// A source had work, or was polled and found empty.
    Worked(u32),
    Empty(u32),
    /// The processor was yielded.
    Yield,
}

/// The behaviour of the sources.
#[derive(Debug, Default)]
struct SourceScript {
    seen: Vec<Seen>,
    /// Number of polls at which each source has work.
    work: BTreeMap<u32, u32>,
    /// Source that notifies a process when it has work.
    notifies: Option<u32>,
    /// A source that, once, wakes another source when it is found empty.
    wakes: Option<(u32, u32)>,
    /// Whether the last polled source is to be awaited.
    awaits: bool,
}

thread_local! {
    static SCRIPT: RefCell<SourceScript> = RefCell::default();
}

fn script<R>(call: impl FnOnce(&mut SourceScript) -> R) -> R {
    SCRIPT.with_borrow_mut(call)
}

fn record_yield() {
    script(|script| script.seen.push(Seen::Yield));
}

fn record_long_yield() {
    record_yield();
    std::thread::sleep(Duration::from_nanos(2 * LONG_YIELD_NS));
}

/// Schedules every source of the shard.
#[derive(Debug)]
struct WakeAll;

impl causeway_model::TypedRequest for WakeAll {
    type Answer = ();
}

/// Sources that are polled without end: the first number and the count. A request wakes all of
/// them.
#[derive(Debug)]
struct TestSources(u32, u32);

impl Service for TestSources {
    fn model(&self, _: &PortSpec) -> causeway_attach::Model {
        causeway_attach::Model::new(0, 0, Vec::new())
    }

    fn added(&mut self, _: &mut Context<'_>, _: PortId) -> Result<(), CommandError> {
        Ok(())
    }

    fn removed(&mut self, _: &mut Context<'_>, _: PortId) {}

    fn serve_source(&mut self, cx: &mut Context<'_>, value: u32, _: usize) -> SourceProgress {
        script(|script| {
            script.awaits = cx.awaits_source(value);
            let work = script.work.entry(value).or_default();
            if *work == 0 {
                script.seen.push(Seen::Empty(value));
                if let Some((_, other)) = script.wakes.take_if(|(by, _)| *by == value) {
                    cx.wake_source(other);
                }
                return SourceProgress { progress: Progress::Idle, count: 0 };
            }
            *work -= 1;
            if script.notifies == Some(value) {
                cx.yield_to_process();
            }
            script.seen.push(Seen::Worked(value));
            SourceProgress { progress: Progress::Worked, count: 1 }
        })
    }

    fn ask(&mut self, cx: &mut Context<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request).on(|WakeAll| {
            (self.0..self.0 + self.1).for_each(|value| cx.wake_source(value));
            Ok(())
        })
    }

    fn counters(&self, _: PortId) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

/// Makes a dispatcher with a shard for each element, which has that many sources, and a fresh
/// script.
fn dispatcher(shards: &[u32]) -> Dispatcher {
    script(|script| *script = SourceScript::default());
    let (mut dispatcher, _) = Dispatcher::new(Instant::now(), 1_000_000, None).unwrap();
    dispatcher.yield_now = record_yield;
    let mut first = 0;
    for (number, count) in shards.iter().enumerate() {
        let group: Name = format!("group-{number}").parse().unwrap();
        let service = Box::new(TestSources(first, *count));
        first += count;
        let shard = Box::new(Shard::new(group.clone(), service, PollConfig::default()).unwrap());
        let key = ShardKey { group, service: "sources" };
        dispatcher.shards.add(key.clone(), shard, Arc::default()).unwrap();
        dispatcher.shards.with(&key, |shard| shard.ask(WakeAll)).unwrap().unwrap();
    }
    dispatcher
}

fn turn(dispatcher: &mut Dispatcher, times: usize) -> Vec<Seen> {
    (0..times).for_each(|_| assert!(dispatcher.turn(false).unwrap()));
    script(|script| std::mem::take(&mut script.seen))
}

/// Returns the sources that were found empty between the last work, or the last yield, and `at`.
fn empty_before(seen: &[Seen], at: usize) -> BTreeSet<u32> {
    let before = seen[..at].iter().rev();
    let empty = before.map_while(|seen| match seen {
        Seen::Empty(value) => Some(*value),
        _ => None,
    });
    empty.collect()
}

fn yields(seen: &[Seen]) -> Vec<usize> {
    seen.iter().enumerate().filter(|(_, seen)| **seen == Seen::Yield).map(|(at, _)| at).collect()
}

#[test]
fn dispatcher_yields_to_a_notified_process_after_an_empty_round() {
    // A source has work behind empty ones: in a single shard, and in several of different sizes.
    for shards in [&[10][..], &[1, 1, 13, 2]] {
        let all: u32 = shards.iter().sum();
        for last in 0..all {
            let mut dispatcher = dispatcher(shards);
            script(|script| {
                script.notifies = Some(0);
                *script.work.entry(0).or_default() += 1;
                *script.work.entry(last).or_default() += 1;
            });
            let seen = turn(&mut dispatcher, 60);
            let [at] = yields(&seen)[..] else { panic!("{shards:?}, {last}: {seen:?}") };
            assert_eq!(empty_before(&seen, at).len(), all as usize, "{shards:?}, {last}: {seen:?}");
            let worked = seen.iter().filter(|seen| matches!(seen, Seen::Worked(_))).count();
            assert_eq!(worked, 2, "{shards:?}, {last}: before it");
            // The yield comes soon: each source is polled at most twice if shards have turns.
            assert!(at < 8 * all as usize, "{shards:?}, {last}: {at}");
        }
    }
}

#[test]
fn dispatcher_polls_new_work_before_it_yields() {
    // A source is woken at any time of the round, behind those that were polled.
    for by in 0..12 {
        let mut dispatcher = dispatcher(&[12]);
        script(|script| {
            script.notifies = Some(0);
            script.work.extend([(0, 1), (20, 1)]);
            script.wakes = Some((by, 20));
        });
        let seen = turn(&mut dispatcher, 40);
        let [at] = yields(&seen)[..] else { panic!("{by}: {seen:?}") };
        assert!(seen[..at].contains(&Seen::Worked(20)), "{by}: {seen:?}");
        assert_eq!(empty_before(&seen, at).len(), 13, "{by}: {seen:?}");
    }
    let mut dispatcher = dispatcher(&[6, 6]);
    script(|script| {
        script.notifies = Some(0);
        script.work.insert(0, 1);
    });
    let mut seen = turn(&mut dispatcher, 1);
    assert_eq!(yields(&seen), [0; 0], "{seen:?}");
    // A shard is added; its last source has work.
    let key = ShardKey { group: "group-2".parse().unwrap(), service: "sources" };
    let service = Box::new(TestSources(12, 6));
    let shard = Box::new(Shard::new(key.group.clone(), service, PollConfig::default()).unwrap());
    dispatcher.shards.add(key.clone(), shard, Arc::default()).unwrap();
    dispatcher.shards.with(&key, |shard| shard.ask(WakeAll)).unwrap().unwrap();
    script(|script| script.work.insert(17, 1));
    seen.extend(turn(&mut dispatcher, 40));
    let [at] = yields(&seen)[..] else { panic!("{seen:?}") };
    assert!(seen[..at].contains(&Seen::Worked(17)), "{seen:?}");
    assert_eq!(empty_before(&seen, at).len(), 18, "{seen:?}");
}

#[test]
fn dispatcher_yields_after_each_empty_round_while_processors_are_scarce() {
    for count in [3, 40, 100, COST_PER_ROUND as u32 - 1] {
        let mut dispatcher = dispatcher(&[count]);
        dispatcher.shards.spin_budget.update(SHARE_PERIOD_NS, SHARE_PERIOD_NS);
        assert!(dispatcher.shards.spin_budget.is_scarce());
        let seen = turn(&mut dispatcher, 1000);
        let at = yields(&seen);
        assert!(at.len() > 3, "{count}: {at:?}");
        for at in at {
            let empty = empty_before(&seen, at).len();
            assert_eq!(empty, count as usize, "at {at}");
        }
        // A source with work is not delayed by yields.
        script(|script| script.work.insert(count - 1, u32::MAX));
        let seen = turn(&mut dispatcher, 3 * count as usize);
        let worked = seen.iter().position(|seen| matches!(seen, Seen::Worked(_))).unwrap();
        if (count as usize) < COST_PER_YIELD {
            assert_eq!(yields(&seen[worked..]), [0; 0], "{count}");
        }
    }
}

#[test]
fn dispatcher_does_not_yield_while_processors_are_ample() {
    let mut dispatcher = dispatcher(&[7, 30]);
    assert_eq!(yields(&turn(&mut dispatcher, 1000)), [0; 0]);
}

#[test]
fn dispatcher_awaits_no_source_after_a_long_yield() {
    for (yield_now, contended) in [(record_yield as fn(), false), (record_long_yield, true)] {
        let mut dispatcher = dispatcher(&[1]);
        dispatcher.yield_now = yield_now;
        script(|script| {
            script.notifies = Some(0);
            script.work.insert(0, 1);
        });
        let seen = turn(&mut dispatcher, 4);
        assert_eq!(yields(&seen).len(), 1, "{seen:?}");
        let until = dispatcher.shards.contended_until_ns;
        assert_eq!(until > 0, contended, "{until}");
        assert!(!contended || until > CONTENDED_NS + 2 * LONG_YIELD_NS);
    }
    // A quick source is awaited, except while the processor is contended.
    let mut dispatcher = dispatcher(&[1]);
    let shards = &mut dispatcher.shards;
    let gives = |shards: &mut ShardTable, now_ns: u64, work: u32| {
        script(|script| script.work.insert(0, work));
        shards.set_now(now_ns);
        shards.turns(u64::MAX);
        script(|script| script.awaits)
    };
    let mut now = 10 * QUICK_NS;
    for _ in 0..=QUICK_RESULTS {
        gives(shards, now, 1);
        now += QUICK_NS / 2;
    }
    assert!(gives(shards, now, 0), "it is awaited");
    shards.contended_until_ns = now + 2;
    assert!(!gives(shards, now + 1, 0), "others have work for the processor");
    assert!(gives(shards, now + 2, 0), "no longer");
}

/// The first port of every group has the same slot and serial number in its shard.
#[test]
fn descriptor_accounts_of_ports_in_two_groups_are_distinct() {
    let account = |group: &str| {
        let group: Name = group.parse().unwrap();
        let service = Box::new(TestSources(0, 0));
        let mut shard = Shard::new(group.clone(), service, PollConfig::default()).unwrap();
        let mac = causeway_model::Mac([2, 0, 0, 0, 0, 1]);
        let net = causeway_model::NetSpec {
            mac,
            guest_mac: None,
            mtu: 1500,
            queue_pairs: 1,
            learn: false,
            offloads: Default::default(),
        };
        let (name, kind) = (group.clone(), causeway_model::PortKind::of(net));
        let spec = PortSpec {
            name: name.clone(),
            group,
            socket: "/unused".into(),
            kind,
            access: Default::default(),
            memory_max: None,
        };
        shard.port_add(spec, false).unwrap();
        shard.ports.by_name(&name).map(|port| port.descriptor_account).unwrap()
    };
    assert_ne!(account("red"), account("blue"));
}
