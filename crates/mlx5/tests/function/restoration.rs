//! Which records are restored, and which are refused or given up.

use std::ops::Range;
use std::os::fd::AsFd;
use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use causeway_memory::{Mapping, View, create};
use causeway_mlx5::limits::RESTORES_MAX;
use causeway_mlx5::{
    FunctionConfig, Record, RecordError, RecordMemory, RecordSpace, RestoreError, Restored, restore,
};
use causeway_verbs::Subnet;
use causeway_wire::mlx5::command::Opcode;
use causeway_wire::mlx5::completion_queue::{
    CompletionQueueContext, MODIFY_COUNT, MODIFY_PERIOD, MODIFY_RESIZE,
};

use crate::driver::{Guest, VIRTUAL, World};
use crate::record::{Killed, Site, config, killed};

/// Length of a step of the allocation.
const STEP: u64 = causeway_mlx5::limits::RECORD_STEP_BYTES as u64;

/// The memory of a file: at most `most` bytes; ends the process at the next allocation if `kills`.
#[derive(Debug, Clone, Default)]
struct Memory {
    most: Arc<AtomicU64>,
    kills: Arc<AtomicBool>,
    allocated: Arc<Mutex<Vec<u64>>>,
}

impl Memory {
    fn steps(range: Range<u64>) -> impl Iterator<Item = u64> {
        assert!(range.start.is_multiple_of(STEP) && range.end.is_multiple_of(STEP), "{range:?}");
        range.start / STEP..range.end / STEP
    }

    fn bytes(&self) -> u64 {
        self.allocated.lock().unwrap().len() as u64 * STEP
    }
}

impl RecordMemory for Memory {
    fn allocate(&mut self, range: Range<u64>) -> bool {
        if self.kills.load(Ordering::Relaxed) {
            panic_any(Killed);
        }
        let bytes = self.bytes() + (range.end - range.start);
        if bytes > self.most.load(Ordering::Relaxed) {
            return false;
        }
        self.allocated.lock().unwrap().extend(Self::steps(range));
        true
    }

    fn release(&mut self, range: Range<u64>) {
        let steps: Vec<u64> = Self::steps(range).collect();
        self.allocated.lock().unwrap().retain(|step| !steps.contains(step));
    }

    fn release_all(&mut self) {
        self.allocated.lock().unwrap().clear();
    }

    fn invalidate(&mut self) {}
}

/// Returns a file for a record, and its memory.
fn space(config: &FunctionConfig, memory: &Memory) -> (View, RecordSpace) {
    let len = Record::file_bytes(config) as u64;
    let file = create("record", len).unwrap();
    let mapping = Arc::new(Mapping::new(file.as_fd(), 0, len).unwrap());
    let view = View::new(mapping, 0, len as usize).unwrap();
    (view.clone(), RecordSpace::new(view, Box::new(memory.clone())))
}

/// Continues the first guest in a new process with the limits of `config`.
fn restore_first(
    site: &mut Site,
    config: &FunctionConfig,
    space: impl Into<RecordSpace>,
) -> Result<Restored, RestoreError> {
    site.world.subnet = Subnet::new();
    let adapter = site.plug_again(0, config);
    restore(&mut site.world.subnet, adapter, space)
}

#[test]
fn record_that_ended_a_process_is_not_restored_again() {
    let mut site = Site::new();
    let config = config(&mut site.world, &site.guests[0]);
    let view = site.files[0].clone();
    let memory = Memory::default();
    memory.most.store(u64::MAX, Ordering::Relaxed);
    memory.kills.store(true, Ordering::Relaxed);
    // The memory of the header is there, and that of the journal ends the process.
    let first = Memory::default();
    first.most.store(STEP, Ordering::Relaxed);
    let with = |memory: &Memory| RecordSpace::new(view.clone(), Box::new(memory.clone()));
    let ends = Killer(first, memory);
    let is_killed = killed(None, || {
        let space = RecordSpace::new(view.clone(), Box::new(ends));
        let _ = restore_first(&mut site, &config, space);
    });
    assert!(is_killed);
    let plenty = Memory::default();
    plenty.most.store(u64::MAX, Ordering::Relaxed);
    let found = restore_first(&mut site, &config, with(&plenty));
    assert_eq!(found, Err(RestoreError::Interrupted { times: 1 }));
    let own = site.world.subnet.adapter(site.guests[0].adapter).unwrap();
    assert_eq!((own.queues().completion_queues(), own.queues().record().is_some()), (0, false));
    // A new record of the file has no such history.
    drop(Record::create(with(&plenty), &config).unwrap());
    assert_eq!(restore_first(&mut site, &config, with(&plenty)), Ok(Restored::default()));
}

/// Memory of which the first allocation succeeds, and the second ends the process.
#[derive(Debug)]
struct Killer(Memory, Memory);

impl RecordMemory for Killer {
    fn allocate(&mut self, range: Range<u64>) -> bool {
        self.0.allocate(range.clone()) || self.1.allocate(range)
    }

    fn release(&mut self, _: Range<u64>) {}

    fn release_all(&mut self) {}

    fn invalidate(&mut self) {}
}

#[test]
fn record_is_restored_a_few_times_until_the_function_was_served() {
    let mut site = Site::new();
    let config = config(&mut site.world, &site.guests[0]);
    let view = site.files[0].clone();
    for _ in 0..2 {
        for _ in 0..RESTORES_MAX {
            assert!(restore_first(&mut site, &config, view.clone()).is_ok());
        }
        if let Some(record) = site.world.function(&site.guests[0]).record_mut() {
            record.confirm();
        }
    }
    for _ in 0..RESTORES_MAX {
        assert!(restore_first(&mut site, &config, view.clone()).is_ok());
    }
    let found = restore_first(&mut site, &config, view);
    assert_eq!(found, Err(RestoreError::Interrupted { times: RESTORES_MAX }));
}

#[test]
fn record_of_another_version_or_other_limits_is_refused() {
    let mut site = Site::new();
    let own = config(&mut site.world, &site.guests[0]);
    let view = site.files[0].clone();
    let version = view.load_word(8).unwrap();
    let mismatch = Err(RestoreError::Record(RecordError::Mismatch));
    for other in (0..8).filter(|other| *other != version) {
        view.store_word(8, other).unwrap();
        assert_eq!(restore_first(&mut site, &own, view.clone()), mismatch, "version {other}");
    }
    view.store_word(8, version).unwrap();
    let half = |number: usize| number / 2;
    let smaller = [
        FunctionConfig { queue_pairs_max: half(own.queue_pairs_max), ..own.clone() },
        FunctionConfig { completion_queues_max: half(own.completion_queues_max), ..own.clone() },
    ];
    for config in smaller {
        assert_eq!(restore_first(&mut site, &config, view.clone()), mismatch);
    }
    assert!(restore_first(&mut site, &own, view).is_ok());
}

#[test]
fn record_keeps_changes_of_a_completion_queue_by_modifier_and_field() {
    let mut site = Site::new();
    let Site { world, guests: [guest, _], .. } = &mut site;
    let mut cq = guest.create_cq(world, 4);
    let change = |world: &mut World, mask, period, max_count| {
        let context = CompletionQueueContext { period, max_count, ..Default::default() };
        guest.modify_cq(world, (cq.number, 0, mask), (context, &[])).unwrap();
    };
    change(world, MODIFY_PERIOD, 100, 0);
    change(world, MODIFY_COUNT, 0, 8);
    change(world, MODIFY_PERIOD, 200, 0);
    guest.resize_cq(world, &mut cq, 6).unwrap();
    assert_eq!(MODIFY_RESIZE, 1);
    site.restart().unwrap();
    let Site { world, guests: [guest, _], .. } = &mut site;
    let input =
        causeway_wire::mlx5::command::InputHeader::new(Opcode::QueryCompletionQueue, cq.number);
    let output = guest.try_command(world, &input.to_bytes(), 0x200).unwrap();
    let at = causeway_wire::mlx5::completion_queue::CONTEXT;
    let found = CompletionQueueContext::parse(&output[at..]).unwrap();
    assert_eq!((found.period, found.max_count, found.log_size), (200, 8, 6));
}

#[test]
fn record_without_memory_is_given_up_and_begins_anew_with_the_driver() {
    let mut world = World::new();
    let mut guest = world.plug(1);
    let own = config(&mut world, &guest);
    let memory = Memory::default();
    let (view, none) = space(&own, &memory);
    let refused = Record::create(none, &own).map(drop);
    assert_eq!(refused, Err(RecordError::NoMemory));
    assert_eq!(view.load_word(0), Ok(0), "no store");

    memory.most.store(8 * STEP, Ordering::Relaxed);
    let (view, some) = space(&own, &memory);
    let record = Record::create(some, &own).unwrap();
    world.function(&guest).set_record(record);
    guest.start(&mut world);
    let is_complete = |world: &mut World, guest: &Guest| {
        let record = world.function(guest).record().unwrap();
        (record.is_complete(), record.losses())
    };
    assert_eq!(is_complete(&mut world, &guest), (true, 0));
    let buffer = guest.allocate(4 << 20);
    // Each journal entry has the list of 1,024 pages.
    for _ in 0..20 {
        guest.register(&mut world, VIRTUAL, buffer, 4 << 20);
    }
    assert_eq!(is_complete(&mut world, &guest), (false, 1));
    assert_eq!(view.load_word(0), Ok(0), "the file is not a record");
    assert_eq!(memory.bytes(), STEP, "all but the header");

    // The next driver has a record again, which is restored.
    causeway_mlx5::reset(&mut world.subnet, guest.adapter);
    assert_eq!(is_complete(&mut world, &guest), (true, 1));
    assert_eq!(memory.bytes(), 2 * STEP);
    memory.most.store(0, Ordering::Relaxed);
    causeway_mlx5::reset(&mut world.subnet, guest.adapter);
    assert_eq!(is_complete(&mut world, &guest), (true, 1), "an empty record needs no more");
}
