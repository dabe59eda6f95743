//! A network interface as a driver brings it up: keys, queues, steering, and buffers.

use std::cell::RefCell;
use std::sync::Arc;

use causeway_mlx5::ethernet::{
    Body, Deliveries, Frame, FrameRef, Next, Received, complete_frame, next_frame, receive_frame,
};
use causeway_wire::mlx5::command::{InputHeader, Opcode, Status};
use causeway_wire::mlx5::completion_queue::{CompletionEntry, Entry};
use causeway_wire::mlx5::memory_key::MemoryKeyContext;
use causeway_wire::mlx5::steering::{
    ACTION_FORWARD, CRITERIA_OUTER, Destination, DestinationType, Dispatch, EntryInput, GroupInput,
    MatchHeaders, ReceiveInterface, TableInput, TableReference,
};
use causeway_wire::mlx5::vport::{MODIFY_NIC_CONTEXT, NicVportContext, select};
use causeway_wire::mlx5::work_queue::{ReceiveQueueContext, SendQueueContext, WorkQueue};
use causeway_wire::mlx5::work_request::{ControlSegment, DataSegment, SendOpcode, SendWriter};

use crate::driver::{Completions, Guest, PAGE, World};

/// Entries of a receive queue; blocks of a send queue, unless its options have another number.
const SIZE: u64 = 16;
const STRIDE: u64 = 32;

pub struct ReceiveRing {
    pub number: u32,
    pub cq: Completions,
    ring: u64,
    pub record: u64,
    buffers: u64,
    buffer_len: u32,
    posted: u16,
    taken: u16,
}

pub struct Interface {
    pub guest: Guest,
    pub key: u32,
    pub send: u32,
    pub send_cq: Completions,
    ring: u64,
    send_blocks: u64,
    pub record: u64,
    pub sent: u16,
    pub receive: Vec<ReceiveRing>,
    pub table: u32,
    pub hashed: u32,
    pub root: u32,
    /// Groups of the root table, by their index.
    groups: RefCell<Vec<(u32, u32)>>,
    payload: u64,
}

/// Properties of an interface.
#[derive(Clone, Copy)]
pub struct Options {
    pub mtu: u16,
    pub queues: usize,
    pub buffer_len: u32,
    pub keeps_vlan: bool,
    /// Blocks of the first send queue, a power of two.
    pub send_blocks: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { mtu: 1500, queues: 1, buffer_len: 2048, keeps_vlan: true, send_blocks: SIZE }
    }
}

/// Executes a command of `len` bytes with values at offsets.
pub fn command(
    world: &mut World,
    guest: &Guest,
    header: InputHeader,
    len: usize,
    values: &[(usize, &[u8])],
) -> Result<u32, Status> {
    let mut input = vec![0; len.max(16)];
    for (at, bytes) in values {
        input[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    header.emit(&mut input[..16]).unwrap();
    let output = guest.try_command(world, &input, 16)?;
    Ok(u32::from_be_bytes(output[8..12].try_into().unwrap()))
}

fn queue(guest: &mut Guest, size: u64, entry: u64, log_stride: u8) -> (WorkQueue, u64) {
    let ring = guest.allocate(size * entry);
    let queue = WorkQueue {
        queue_type: 1,
        domain: guest.domain,
        doorbell_record: guest.allocate(8),
        log_stride,
        log_size: size.trailing_zeros() as u8,
        ..Default::default()
    };
    (queue, ring)
}

pub fn set_mtu(world: &mut World, guest: &Guest, mtu: u16) -> Result<(), Status> {
    let context = NicVportContext { mtu: mtu + 22, ..Default::default() };
    modify_vport(world, guest, select::MTU, context)
}

pub fn modify_vport(
    world: &mut World,
    guest: &Guest,
    argument: u32,
    context: NicVportContext,
) -> Result<(), Status> {
    let header = InputHeader { argument, ..InputHeader::new(Opcode::ModifyNicVportContext, 0) };
    let bytes = context.to_bytes();
    command(world, guest, header, 0x200, &[(MODIFY_NIC_CONTEXT, &bytes)]).map(drop)
}

impl Interface {
    /// Starts a driver and brings its interface up.
    pub fn up(world: &mut World, last: u8, options: Options) -> Self {
        let mut guest = world.start(last);
        let context = MemoryKeyContext {
            local_read: true,
            local_write: true,
            is_unlimited: true,
            domain: guest.domain,
            variable: 3,
            ..Default::default()
        };
        let key = guest.create_key(world, &context, &[]).unwrap();
        set_mtu(world, &guest, options.mtu).unwrap();
        let tis = InputHeader::new(Opcode::CreateTis, 0);
        let tis = command(world, &guest, tis, 0xc0, &[]).unwrap();
        let send_cq = guest.create_cq(world, 6);
        let (queue, ring) = queue(&mut guest, options.send_blocks, 64, 6);
        let context = SendQueueContext {
            flushes_in_error: true,
            user_index: 0x51,
            completion_queue: send_cq.number,
            interface_count: 1,
            interface: tis,
            queue,
            ..Default::default()
        };
        let context_bytes = context.to_bytes();
        let create = (Opcode::CreateSendQueue, (0x20, &context_bytes[..]));
        let send = guest.create(world, create.0, create.1, (0x110, &[ring])).unwrap();
        let payload = guest.allocate(1 << 20);
        let mut interface = Self {
            key,
            send,
            send_cq,
            ring,
            send_blocks: options.send_blocks,
            record: queue.doorbell_record,
            sent: 0,
            receive: Vec::new(),
            table: 0,
            hashed: 0,
            root: 0,
            groups: RefCell::default(),
            payload,
            guest,
        };
        interface.set_send_state(world, 1).unwrap();
        for _ in 0..options.queues {
            interface.add_receive_queue(world, options);
        }
        interface.steer(world);
        interface
    }

    /// Adds a send queue in the ready state without entries.
    pub fn add_send_queue(&mut self, world: &mut World) {
        let (queue, ring) = queue(&mut self.guest, SIZE, 64, 6);
        let completion_queue = self.send_cq.number;
        let context = SendQueueContext { completion_queue, queue, ..Default::default() };
        let create = (Opcode::CreateSendQueue, (0x20, &context.to_bytes()[..]));
        let number = self.guest.create(world, create.0, create.1, (0x110, &[ring])).unwrap();
        let header = InputHeader::new(Opcode::ModifySendQueue, number);
        command(world, &self.guest, header, 0x110, &[(0x21, &[1 << 4])]).unwrap();
    }

    pub fn set_send_state(&self, world: &mut World, state: u8) -> Result<u32, Status> {
        let header = InputHeader::new(Opcode::ModifySendQueue, self.send);
        command(world, &self.guest, header, 0x110, &[(0x21, &[state << 4])])
    }

    pub fn set_receive_state(&self, world: &mut World, queue: usize, state: u8) {
        let header = InputHeader::new(Opcode::ModifyReceiveQueue, self.receive[queue].number);
        command(world, &self.guest, header, 0x110, &[(0x21, &[state << 4])]).unwrap();
    }

    fn add_receive_queue(&mut self, world: &mut World, options: Options) {
        let guest = &mut self.guest;
        let cq = guest.create_cq(world, 6);
        let (queue, ring) = queue(guest, SIZE, STRIDE, 5);
        let context = ReceiveQueueContext {
            keeps_vlan: options.keeps_vlan,
            user_index: 0x52,
            completion_queue: cq.number,
            counter_set: 9,
            queue,
            ..Default::default()
        };
        let bytes = context.to_bytes();
        let create = (Opcode::CreateReceiveQueue, (0x20, &bytes[..]));
        let number = guest.create(world, create.0, create.1, (0x110, &[ring])).unwrap();
        let buffers = guest.allocate(SIZE * u64::from(options.buffer_len));
        let record = queue.doorbell_record;
        let (buffer_len, posted, taken) = (options.buffer_len, 0, 0);
        let ring = ReceiveRing { number, cq, ring, record, buffers, buffer_len, posted, taken };
        self.receive.push(ring);
        let index = self.receive.len() - 1;
        self.set_receive_state(world, index, 1);
        self.post(index, SIZE as u16);
    }

    /// Creates the interfaces and the flow tables that send TCP over IPv4 to all queues by hash, and
    /// other frames to the first queue.
    fn steer(&mut self, world: &mut World) {
        let guest = &self.guest;
        let list: Vec<u8> = (0..128)
            .flat_map(|index| self.receive[index % self.receive.len()].number.to_be_bytes())
            .collect();
        let header = InputHeader::new(Opcode::CreateReceiveQueueTable, 0);
        let values: [(usize, &[u8]); 3] =
            [(0x36, &128_u16.to_be_bytes()), (0x3a, &128_u16.to_be_bytes()), (0x110, &list)];
        self.table = command(world, guest, header, 0x110 + list.len(), &values).unwrap();
        let hashed = ReceiveInterface {
            dispatch: Dispatch::Indirect.raw(),
            table: self.table,
            hash: 2,
            hash_fields: 15,
            ..Default::default()
        };
        let direct =
            ReceiveInterface { receive_queue: self.receive[0].number, ..Default::default() };
        let key: Vec<u8> = (0..40).map(|byte: u8| byte.wrapping_mul(37).wrapping_add(11)).collect();
        let mut interface = |context: ReceiveInterface| {
            let header = InputHeader::new(Opcode::CreateTir, 0);
            let bytes = context.to_bytes();
            let values: [(usize, &[u8]); 2] = [(0x20, &bytes), (0x48, &key)];
            command(world, guest, header, 0x110, &values).unwrap()
        };
        self.hashed = interface(hashed);
        let others = interface(direct);
        let header = InputHeader::new(Opcode::CreateFlowTable, 0);
        let table = TableInput { log_size: 4, ..Default::default() };
        let root = command(world, guest, header, 0x40, &[(0, &table.to_bytes())]).unwrap();
        let header = InputHeader::new(Opcode::SetFlowTableRoot, 0);
        let table = TableReference { table: root, ..Default::default() };
        command(world, guest, header, 0x40, &[(0, &table.to_bytes())]).unwrap();
        self.root = root;
        let tcp = MatchHeaders { ip_version: 4, protocol: 6, ..Default::default() };
        let all = MatchHeaders { ip_version: 15, protocol: 255, ..Default::default() };
        self.add_rule(world, 0, (all, tcp), self.hashed, 0);
        self.add_rule(world, 1, Default::default(), others, 0x77);
    }

    /// Adds a group of one entry to the root table.
    pub fn add_rule(
        &self,
        world: &mut World,
        index: u32,
        rule: (MatchHeaders, MatchHeaders),
        interface: u32,
        tag: u32,
    ) {
        self.add_rule_with(world, index, rule, (interface, tag), &[]);
    }

    /// As [`Self::add_rule`], with further bytes in the command that makes the group.
    pub fn add_rule_with(
        &self,
        world: &mut World,
        index: u32,
        (mask, value): (MatchHeaders, MatchHeaders),
        (interface, tag): (u32, u32),
        bytes: &[(usize, &[u8])],
    ) {
        let header = InputHeader::new(Opcode::CreateFlowGroup, 0);
        let table = self.root;
        let group = GroupInput {
            table,
            first: index,
            last: index,
            criteria: CRITERIA_OUTER,
            outer: mask,
            ..Default::default()
        };
        let group = group.to_bytes();
        let values: Vec<(usize, &[u8])> =
            [(0, &group[..])].into_iter().chain(bytes.iter().copied()).collect();
        let guest = &self.guest;
        let group = command(world, guest, header, 0x400, &values).unwrap();
        self.groups.borrow_mut().push((index, group));
        let header = InputHeader::new(Opcode::SetFlowTableEntry, 0);
        let entry = EntryInput {
            table,
            index,
            group,
            tag,
            action: ACTION_FORWARD,
            destinations: 1,
            outer: value,
            ..Default::default()
        };
        let destination_type = DestinationType::ReceiveInterface.raw();
        let to = Destination { destination_type, number: interface }.to_bytes();
        let values: [(usize, &[u8]); 2] = [(0, &entry.to_bytes()), (0x340, &to)];
        command(world, guest, header, 0x348, &values).unwrap();
    }

    /// Removes all groups and entries.
    pub fn clear_rules(&self, world: &mut World) {
        for (index, group) in self.groups.borrow_mut().drain(..) {
            let rule = TableReference { table: self.root, group, index, ..Default::default() };
            for opcode in [Opcode::DeleteFlowTableEntry, Opcode::DestroyFlowGroup] {
                let rule = TableReference {
                    group: if opcode == Opcode::DestroyFlowGroup { group } else { 0 },
                    ..rule
                };
                let header = InputHeader::new(opcode, 0);
                command(world, &self.guest, header, 0x40, &[(0, &rule.to_bytes())]).unwrap();
            }
        }
    }

    /// Posts receive entries with a buffer each.
    pub fn post(&mut self, queue: usize, count: u16) {
        let ring = &mut self.receive[queue];
        for _ in 0..count {
            let slot = u64::from(ring.posted) % SIZE;
            let at = ring.ring + slot * STRIDE;
            let address = ring.buffers + slot * u64::from(ring.buffer_len);
            let data = DataSegment { raw_len: ring.buffer_len, key: self.key, address };
            self.guest.write(at, &data.to_bytes());
            self.guest.write(at + 16, &DataSegment::end().to_bytes());
            ring.posted = ring.posted.wrapping_add(1);
        }
        self.guest.write(ring.record, &u32::from(ring.posted).to_be_bytes());
    }

    /// Overwrites the segments of the next receive entry.
    pub fn replace_entry(&self, queue: usize, segments: &[DataSegment]) {
        let ring = &self.receive[queue];
        let at = ring.ring + u64::from(ring.taken) % SIZE * STRIDE;
        for (index, segment) in segments.iter().enumerate() {
            self.guest.write(at + index as u64 * 16, &segment.to_bytes());
        }
    }

    /// Takes the next received frame, with its completion, and posts its entry again.
    pub fn receive(&mut self, queue: usize) -> Option<(CompletionEntry, Vec<u8>)> {
        let entry = self.guest.poll_cq(&mut self.receive[queue].cq)?;
        let Entry::Success(entry) = entry else { panic!("{entry:?}") };
        let ring = &mut self.receive[queue];
        assert_eq!((entry.counter, entry.opcode, entry.user_index), (ring.taken, 2, 0x52));
        assert_eq!((entry.merged_segments, entry.source_queue_pair), (0, 0));
        assert!(entry.bytes <= ring.buffer_len);
        let slot = u64::from(ring.taken) % SIZE;
        let at = ring.buffers + slot * u64::from(ring.buffer_len);
        ring.taken = ring.taken.wrapping_add(1);
        let bytes = self.guest.read(at, entry.bytes as usize);
        self.post(queue, 1);
        Some((entry, bytes))
    }

    /// Writes bytes to the memory of a frame's payload. Returns the segment for them.
    pub fn payload(&self, bytes: &[u8]) -> DataSegment {
        self.guest.write(self.payload, bytes);
        DataSegment { raw_len: bytes.len() as u32, key: self.key, address: self.payload }
    }

    /// Posts a send entry.
    pub fn post_send(
        &mut self,
        opcode: SendOpcode,
        build: impl for<'a> FnOnce(SendWriter<'a>) -> SendWriter<'a>,
    ) {
        let control = ControlSegment {
            index: self.sent,
            opcode: opcode.raw(),
            queue: self.send,
            completion: 2,
            ..Default::default()
        };
        let mut entry = [0; 1024];
        let blocks = build(SendWriter::new(&mut entry, control)).finish().unwrap();
        self.post_raw(&entry[..usize::from(blocks) * 64]);
    }

    /// Posts blocks of the send queue.
    pub fn post_raw(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len() % 64, 0);
        for block in bytes.chunks(64) {
            let at = self.ring + u64::from(self.sent) % self.send_blocks * 64;
            self.guest.write(at, block);
            self.sent = self.sent.wrapping_add(1);
        }
        self.guest.write(self.record + 4, &u32::from(self.sent).to_be_bytes());
    }

    /// Forgets posted entries, as a driver does that resets its queue.
    pub fn restart_send(&mut self, world: &mut World) {
        self.set_send_state(world, 0).unwrap();
        self.sent = 0;
        self.guest.write(self.record + 4, &[0; 4]);
        self.set_send_state(world, 1).unwrap();
    }

    /// Takes the next completion of the send queue.
    pub fn sent_entry(&mut self) -> Option<Entry> {
        self.guest.poll_cq(&mut self.send_cq)
    }

    /// Takes a frame and offers it to another interface.
    pub fn forward(&self, world: &mut World, to: &Interface) -> (Next, Option<Received>) {
        let mut frame = Frame::default();
        let adapter = world.subnet.adapter_mut(self.guest.adapter).unwrap();
        let next = next_frame(adapter, &mut frame);
        if next != Next::Frame {
            return (next, None);
        }
        assert_eq!(
            frame.len,
            frame.head.len() + frame.body.iter().map(|s| s.len as usize).sum::<usize>()
        );
        let map = Arc::clone(&self.guest.map);
        let body = Body::Guest(&map, &frame.body);
        let (offload, head, len) = (&frame.offload, &frame.head[..], frame.len);
        let received = offer(world, to, &FrameRef { offload, head, body, len });
        complete_frame(world.subnet.adapter_mut(self.guest.adapter).unwrap());
        (next, Some(received))
    }

    /// Sends a frame, its first 18 bytes in the entry, and offers it to another interface.
    pub fn send_frame(&mut self, world: &mut World, to: &Interface, bytes: &[u8]) -> Received {
        let data = self.payload(&bytes[18..]);
        let head = &bytes[..18];
        self.post_send(SendOpcode::Send, |w| w.ethernet(Default::default(), head).data(&data));
        self.forward(world, to).1.unwrap()
    }
}

/// Offers a frame to an interface.
pub fn offer(world: &mut World, to: &Interface, frame: &FrameRef<'_>) -> Received {
    offer_counted(world, to, frame, &mut Deliveries::default())
}

/// Offers a frame to an interface, and counts its deliveries.
pub fn offer_counted(
    world: &mut World,
    to: &Interface,
    frame: &FrameRef<'_>,
    deliveries: &mut Deliveries,
) -> Received {
    receive_frame(world.subnet.adapter_mut(to.guest.adapter).unwrap(), frame, deliveries)
}

/// Returns two interfaces with options.
pub fn pair(world: &mut World, options: Options) -> (Interface, Interface) {
    assert_eq!(PAGE, 4096);
    (Interface::up(world, 1, options), Interface::up(world, 2, options))
}

/// Returns a UDP frame from interface 1 to interface 2 with an incomplete checksum.
pub fn udp(payload: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let content: Vec<u8> = (0..payload).map(|index| (index * 7) as u8).collect();
    etherparse::PacketBuilder::ethernet2([2, 0x43, 0x57, 0, 0, 1], [2, 0x43, 0x57, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(1000, 2000)
        .write(&mut bytes, &content)
        .unwrap();
    bytes
}

/// Returns a TCP segment from a port of interface 1 to interface 2, with checksums.
pub fn tcp(port: u16, payload: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    etherparse::PacketBuilder::ethernet2([2, 0x43, 0x57, 0, 0, 1], [2, 0x43, 0x57, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(port, 80, 1, 1000)
        .ack(1)
        .write(&mut bytes, &vec![9; payload])
        .unwrap();
    bytes
}

/// Checks the checksums of a frame, and the reports of its completion.
pub fn verify(entry: &CompletionEntry, bytes: &[u8]) {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    let packet = SlicedPacket::from_ethernet(bytes).unwrap();
    let start = match packet.net.as_ref().unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            assert_eq!(entry.layer3, 2);
            bytes.len() - usize::from(header.total_len)
        }
        NetSlice::Ipv6(_) => {
            assert_eq!(entry.layer3, 1);
            bytes.len() - packet.net.as_ref().unwrap().ip_payload_ref().unwrap().payload.len() - 40
        }
        _ => panic!("no IP packet"),
    };
    let payload = packet.net.as_ref().unwrap().ip_payload_ref().unwrap();
    let right = match (packet.transport.as_ref().unwrap(), packet.net.as_ref().unwrap()) {
        (TransportSlice::Tcp(tcp), NetSlice::Ipv4(ip)) => {
            let sum = tcp.to_header().calc_checksum_ipv4(&ip.header().to_header(), tcp.payload());
            sum.unwrap() == tcp.checksum()
        }
        (TransportSlice::Tcp(tcp), NetSlice::Ipv6(ip)) => {
            let sum = tcp.to_header().calc_checksum_ipv6(&ip.header().to_header(), tcp.payload());
            sum.unwrap() == tcp.checksum()
        }
        (TransportSlice::Udp(udp), NetSlice::Ipv4(ip)) => {
            let sum = udp.to_header().calc_checksum_ipv4(&ip.header().to_header(), udp.payload());
            sum.unwrap() == udp.checksum()
        }
        (TransportSlice::Udp(udp), NetSlice::Ipv6(ip)) => {
            let sum = udp.to_header().calc_checksum_ipv6(&ip.header().to_header(), udp.payload());
            sum.unwrap() == udp.checksum()
        }
        other => panic!("{other:?} {payload:?}"),
    };
    assert!(right, "the transport checksum is wrong");
    assert_eq!(entry.checks, 7);
    assert_eq!(entry.checksum, !causeway_wire::checksum::of(&bytes[start..]));
}
