//! A virtual machine with one processor in 64-bit user mode, without a kernel.
//!
//! The processor starts at privilege level 3 in long mode and without an interrupt table: any fault
//! ends the guest. The guest rings doorbells by writes to addresses without memory, as drivers of
//! PCI devices do.
//!
//! `super` creates one machine in the guest's process and runs it in the main thread. The guest has
//! 4 MiB of memory, in a file that is also granted to the dispatcher. An error is the system call
//! that failed, or the exit that ended the guest; only a run that a signal interrupts is continued.

#![allow(unsafe_code, reason = "memory slots, and an eventfd with two owners")]

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_segment, kvm_userspace_memory_region};
use kvm_ioctls::{IoEventAddress, Kvm, NoDatamatch, VcpuExit, VcpuFd, VmFd};
use rustix::event::{EventfdFlags, eventfd};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use vmm_sys_util::eventfd::EventFd;

use super::payload::{EXIT, code};

/// Guest memory, in bytes; at guest address 0, mapped to itself.
pub const MEMORY: u64 = 4 << 20;
/// Guest address of the parameters.
pub const PARAMETERS: u64 = 0x4000;

const TABLES: u64 = 0x1000;
const CODE: u64 = 0x5000;

/// The machine, and its memory as a file.
#[derive(Debug)]
pub struct Machine {
    processor: VcpuFd,
    vm: VmFd,
    memory: std::fs::File,
    doorbells: Vec<EventFd>,
}

fn failed(what: &str) -> impl Fn(kvm_ioctls::Error) -> String {
    move |error| format!("KVM: {what}: {error}")
}

/// Page tables that identity-map the memory and the next 2 MiB, accessible in user mode.
fn page_tables(memory: &std::fs::File) -> std::io::Result<()> {
    const USER: u64 = 0b111;
    const LARGE: u64 = 1 << 7;
    memory.write_all_at(&(TABLES + 0x1000 + USER).to_le_bytes(), TABLES)?;
    memory.write_all_at(&(TABLES + 0x2000 + USER).to_le_bytes(), TABLES + 0x1000)?;
    for (index, page) in (0..=MEMORY).step_by(2 << 20).enumerate() {
        let entry = (page + LARGE + USER).to_le_bytes();
        memory.write_all_at(&entry, TABLES + 0x2000 + index as u64 * 8)?;
    }
    Ok(())
}

/// A flat user-mode segment.
fn segment(selector: u16, kind: u8, long: u8) -> kvm_segment {
    kvm_segment {
        limit: u32::MAX,
        selector,
        type_: kind,
        present: 1,
        dpl: 3,
        db: 1 - long,
        s: 1,
        l: long,
        g: 1,
        ..kvm_segment::default()
    }
}

fn start_state(processor: &VcpuFd) -> Result<(), String> {
    let mut sregs = processor.get_sregs().map_err(failed("registers"))?;
    sregs.cs = segment(0x33, 11, 1);
    let data = segment(0x2b, 3, 0);
    (sregs.ss, sregs.ds, sregs.es, sregs.fs, sregs.gs) = (data, data, data, data, data);
    sregs.tr = kvm_segment { type_: 11, present: 1, limit: 0x67, ..kvm_segment::default() };
    // CR0: protection and paging. CR4: PAE and SSE. EFER: long mode.
    (sregs.cr0, sregs.cr3, sregs.cr4, sregs.efer) = (0x8000_0033, TABLES, 0x220, 0x500);
    processor.set_sregs(&sregs).map_err(failed("cannot set 64-bit user mode"))?;
    let mut regs = processor.get_regs().map_err(failed("registers"))?;
    (regs.rip, regs.rdi, regs.rflags) = (CODE, PARAMETERS, 2);
    processor.set_regs(&regs).map_err(failed("registers"))
}

impl Machine {
    /// Creates the machine; the error is the reason why this host cannot.
    pub fn new() -> Result<Self, String> {
        let kvm = Kvm::new().map_err(|e| format!("/dev/kvm: {e}"))?;
        let vm = kvm.create_vm().map_err(failed("no machine"))?;
        let file = causeway_memory::create("causeway-bare", MEMORY).map_err(|e| e.to_string())?;
        let (kind, access) = (MapFlags::SHARED, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping at an address of the kernel's choice; no memory of this process
        // lies there.
        let mapped =
            unsafe { mmap(std::ptr::null_mut(), MEMORY as usize, access, kind, file.as_fd(), 0) };
        let slot = kvm_userspace_memory_region {
            memory_size: MEMORY,
            userspace_addr: mapped.map_err(|e| e.to_string())? as u64,
            ..kvm_userspace_memory_region::default()
        };
        // SAFETY: the mapping above stays until this process ends.
        unsafe { vm.set_user_memory_region(slot) }.map_err(failed("memory"))?;
        let memory = std::fs::File::from(file);
        page_tables(&memory)
            .and_then(|()| memory.write_all_at(code(), CODE))
            .map_err(|e| e.to_string())?;
        let processor = vm.create_vcpu(0).map_err(failed("no processor"))?;
        let cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(failed("cpuid"))?;
        processor.set_cpuid2(&cpuid).map_err(failed("cpuid"))?;
        start_state(&processor)?;
        Ok(Self { processor, vm, memory, doorbells: Vec::new() })
    }

    /// Returns the guest's memory.
    pub fn memory(&self) -> &std::fs::File {
        &self.memory
    }

    /// Returns the memory's descriptor, to be granted to the dispatcher.
    pub fn memory_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Registers an ioeventfd: writes to `address` signal the returned eventfd inside the kernel.
    pub fn doorbell(&mut self, address: u64) -> Result<OwnedFd, String> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let ours = eventfd(0, flags).map_err(|e| e.to_string())?;
        let theirs = ours.try_clone().map_err(|e| e.to_string())?.into_raw_fd();
        // SAFETY: the descriptor was just created, and its only owner gave it up.
        let theirs = unsafe { EventFd::from_raw_fd(theirs) };
        let address = IoEventAddress::Mmio(address);
        self.vm.register_ioevent(&theirs, &address, NoDatamatch).map_err(failed("ioeventfd"))?;
        self.doorbells.push(theirs);
        Ok(ours)
    }

    /// Runs until the guest signals the end of the run; any other exit is an error.
    pub fn run(&mut self) -> Result<(), String> {
        loop {
            match self.processor.run() {
                Ok(VcpuExit::MmioWrite(EXIT, _)) => return Ok(()),
                Ok(exit) => return Err(format!("KVM: the guest ended: {exit:?}")),
                Err(error) if error.errno() == rustix::io::Errno::INTR.raw_os_error() => {}
                Err(error) => return Err(format!("KVM: {error}")),
            }
        }
    }
}
