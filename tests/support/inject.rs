//! Runs system calls inside another process, as code would that has taken the process over. ptrace stops the process
//! and makes it run its own `syscall` instruction with registers that the test sets. So the kernel applies the
//! credentials, namespaces, descriptors and seccomp filter of the real program, not of a copy.

#![allow(unsafe_code, reason = "ptrace has no safe form, and the tests have no other use for nix's")]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use nix::libc::{self, c_int, c_void, user_regs_struct};

use crate::run::eventually;

/// Bytes of the `syscall` instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Size of the memory for data that the process reads.
const PAGE_LEN: u64 = 4096;
/// `-ERESTARTSYS` to `-ERESTART_RESTARTBLOCK`: the kernel's return values for an interrupted call.
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;

/// A process under the test's control, until dropped. All calls must come from the thread that took it over.
pub struct Injected {
    pid: i32,
    saved: user_regs_struct,
    memory: File,
    page: u64,
}

impl Injected {
    /// Takes over the first thread of a process, which must be waiting in a system call.
    pub fn take_over(pid: i32) -> Self {
        request(libc::PTRACE_SEIZE, pid, 0).expect("seizing");
        let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem")).expect("its memory");
        // A process that is busy now waits soon.
        let saved = eventually("the process waits in a system call", || {
            request(libc::PTRACE_INTERRUPT, pid, 0).expect("interrupting");
            assert!(libc::WIFSTOPPED(wait(pid)), "it is stopped");
            let saved = registers(pid);
            let mut instruction = [0; 2];
            memory.read_exact_at(&mut instruction, saved.rip - 2).expect("its code");
            if instruction == SYSCALL {
                return Ok(saved);
            }
            request(libc::PTRACE_CONT, pid, 0).expect("going on");
            Err(format!("it computes: {instruction:?}"))
        });
        let mut taken = Self { pid, saved, memory, page: 0 };
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let page = taken.call(libc::SYS_mmap, &[0, PAGE_LEN, access as u64, kind as u64, u64::MAX, 0]);
        taken.page = u64::try_from(page).expect("a page");
        taken
    }

    /// Makes a system call; returns the kernel's result: a value, or a negative error number.
    pub fn call(&mut self, number: i64, arguments: &[u64]) -> i64 {
        let argument = |index: usize| arguments.get(index).copied().unwrap_or(0);
        let registers_now = user_regs_struct {
            rip: self.saved.rip - 2,
            rax: number.cast_unsigned(),
            // No interrupted call that the kernel would restart.
            orig_rax: u64::MAX,
            rdi: argument(0),
            rsi: argument(1),
            rdx: argument(2),
            r10: argument(3),
            r8: argument(4),
            r9: argument(5),
            ..self.saved
        };
        set_registers(self.pid, &registers_now);
        request(libc::PTRACE_SINGLESTEP, self.pid, 0).expect("one step");
        let status = wait(self.pid);
        assert!(libc::WIFSTOPPED(status), "call {number} ended the process: status {status:#x}");
        registers(self.pid).rax.cast_signed()
    }

    /// Writes bytes into the process' memory; returns their address. The next `put` overwrites them.
    pub fn put(&mut self, bytes: &[u8]) -> u64 {
        assert!(bytes.len() as u64 <= PAGE_LEN, "they fit");
        self.memory.write_all_at(bytes, self.page).expect("its memory");
        self.page
    }

    /// [`Injected::put`] of text with a final zero byte.
    pub fn text(&mut self, text: &str) -> u64 {
        self.put(&[text.as_bytes(), b"\0"].concat())
    }

    /// Reads the process' memory at an address.
    pub fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_exact_at(&mut bytes, address).expect("its memory");
        bytes
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        let mut restored = self.saved;
        if RESTARTS.contains(&restored.rax.cast_signed()) {
            restored.rax = i64::from(-libc::EINTR).cast_unsigned();
        }
        restored.orig_rax = u64::MAX;
        // If the process has ended, both calls fail and nothing is to be restored.
        // SAFETY: registers that live through the call, of a process that this thread has stopped.
        unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.pid, std::ptr::null_mut::<c_void>(), (&raw const restored).cast::<c_void>()) };
        let _let_go = request(libc::PTRACE_DETACH, self.pid, 0);
    }
}

fn request(kind: libc::c_uint, pid: i32, data: usize) -> io::Result<()> {
    // SAFETY: these requests take only numbers.
    let done = unsafe { libc::ptrace(kind, pid, std::ptr::null_mut::<c_void>(), data as *mut c_void) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn registers(pid: i32) -> user_regs_struct {
    // SAFETY: the struct has only numbers, so all zeroes are a valid value.
    let mut found: user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: there is room for the registers of a process that this thread has stopped.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETREGS, pid, std::ptr::null_mut::<c_void>(), (&raw mut found).cast::<c_void>()) };
    assert_ne!(done, -1, "{}", io::Error::last_os_error());
    found
}

fn set_registers(pid: i32, wanted: &user_regs_struct) {
    // SAFETY: registers that live through the call, of a process that this thread has stopped.
    let done =
        unsafe { libc::ptrace(libc::PTRACE_SETREGS, pid, std::ptr::null_mut::<c_void>(), std::ptr::from_ref(wanted).cast::<c_void>()) };
    assert_ne!(done, -1, "{}", io::Error::last_os_error());
}

fn wait(pid: i32) -> c_int {
    let mut status = 0;
    // SAFETY: room for one number.
    let found = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
    assert_eq!(found, pid, "{}", io::Error::last_os_error());
    status
}
