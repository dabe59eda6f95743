//! The bare guest's program: position-independent, without a stack.
//!
//! The program drives two devices: it sends frames by the transmit ring of the first device and
//! takes them from the receive ring of the second. A number is written into each frame before it is
//! sent, and read from each frame that arrives. Every ring has 256 entries, and entry `i` always
//! names buffer `i`; the backend uses buffers in order, so that two counters are the complete
//! state. `rdi` points to the parameters.
//!
//! `super` copies the code into guest memory, writes the parameters ([`at`]), and runs the machine
//! until the program writes to [`EXIT`]; the next run continues behind that write. The program
//! checks nothing: a frame that the backend drops lets it poll until the process is killed.

#![allow(unsafe_code, reason = "the only way to have machine code of our own")]

use std::arch::global_asm;

/// Doorbell address of the transmit ring. There is no memory at these addresses.
pub const RING_SEND: u64 = 0x40_0500;
/// Doorbell address of the receive ring.
pub const RING_RECEIVE: u64 = 0x40_0510;
/// Address of the doorbell of the two rings that carry no frames.
pub const RING_UNUSED: u64 = 0x40_0520;
/// A write to this address ends a run.
pub const EXIT: u64 = 0x40_0530;

/// Offset of each parameter, in bytes from `rdi`.
pub mod at {
    /// Guest addresses: available and used ring of the sender, then of the receiver; buffers of the
    /// sender (128 bytes apart), then of the receiver (2048 bytes apart).
    pub const RINGS: u64 = 0;
    /// Number of frames, counted from the start of the guest, at which the run ends; in mode 1,
    /// doorbells of this run.
    pub const TARGET: u64 = 48;
    /// Most frames made available at a time.
    pub const BURST: u64 = 56;
    /// Maximum frames in flight.
    pub const WINDOW: u64 = 64;
    /// Doorbells rung in mode 0, counted by the guest; the host sets it to 0 before a run.
    pub const RUNG: u64 = 88;
    /// 0: frames; 1: ring the doorbell of the idle rings, TARGET times.
    pub const MODE: u64 = 112;
}

global_asm!(
    ".section .rodata.causeway_bare, \"a\"",
    ".globl causeway_bare_start",
    ".globl causeway_bare_end",
    "causeway_bare_start:",
    "mov r12, [rdi]",
    "mov r13, [rdi+8]",
    "mov r14, [rdi+16]",
    "mov r15, [rdi+24]",
    "xor r8, r8", // sent
    "xor r9, r9", // got
    "1:",
    "cmp qword ptr [rdi+112], 0",
    "jne 8f",
    "2:", // rax: how many to send, the least of four bounds
    "mov rax, [rdi+48]",
    "sub rax, r8",
    "mov rcx, r9",
    "add rcx, [rdi+64]",
    "sub rcx, r8",
    "cmp rax, rcx",
    "cmova rax, rcx",
    "mov rcx, [rdi+56]",
    "cmp rax, rcx",
    "cmova rax, rcx",
    "movzx ecx, word ptr [r13+2]",
    "mov edx, r8d",
    "sub edx, ecx",
    "movzx edx, dx",
    "neg edx",
    "add edx, 256",
    "cmp rax, rdx",
    "cmova rax, rdx",
    "test rax, rax",
    "jz 5f",
    "3:", // a number into each frame
    "mov rcx, r8",
    "and ecx, 255",
    "shl rcx, 7",
    "add rcx, [rdi+32]",
    "mov [rcx+26], r8",
    "inc r8",
    "dec rax",
    "jnz 3b",
    "mov [r12+2], r8w",
    "mfence",
    "test word ptr [r13], 1",
    "jnz 5f",
    "mov edx, {send}",
    "mov [rdx], ax",
    "inc qword ptr [rdi+88]",
    "5:", // eax: how many came
    "movzx eax, word ptr [r15+2]",
    "sub eax, r9d",
    "movzx eax, ax",
    "test eax, eax",
    "jz 2b",
    "6:", // look at each
    "mov rcx, r9",
    "and ecx, 255",
    "shl rcx, 11",
    "add rcx, [rdi+40]",
    "mov rdx, [rcx+26]",
    "add [rdi+104], rdx",
    "inc r9",
    "dec eax",
    "jnz 6b",
    "lea ecx, [r9+256]",
    "mov [r14+2], cx",
    "mfence",
    "test word ptr [r15], 1",
    "jnz 7f",
    "mov edx, {receive}",
    "mov [rdx], ax",
    "inc qword ptr [rdi+88]",
    "7:",
    "cmp r9, [rdi+48]",
    "jb 2b",
    "jmp 9f",
    "8:",
    "mov rcx, [rdi+48]",
    "mov edx, {unused}",
    "4:",
    "mov [rdx], ax",
    "dec rcx",
    "jnz 4b",
    "9:",
    "mov edx, {exit}",
    "mov [rdx], ax",
    "jmp 1b",
    "causeway_bare_end:",
    ".previous",
    send = const RING_SEND,
    receive = const RING_RECEIVE,
    unused = const RING_UNUSED,
    exit = const EXIT,
);

unsafe extern "C" {
    #[link_name = "causeway_bare_start"]
    static START: u8;
    #[link_name = "causeway_bare_end"]
    static END: u8;
}

/// Returns the machine code.
pub fn code() -> &'static [u8] {
    // SAFETY: this module defines both symbols, START before END in a section that is never
    // written.
    unsafe {
        let (start, end) = (&raw const START, &raw const END);
        std::slice::from_raw_parts(start, end.offset_from_unsigned(start))
    }
}
