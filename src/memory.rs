//! The allocator, and the return of memory to the system: code that only the start needed, and freed memory, after the start and after
//! busy periods. An idle process should have only the memory that it uses.
//!
//! The allocator is jemalloc (docs/decisions/0025-jemalloc.md). C libraries, of which SQLite allocates most, keep glibc's.

use std::ffi::{CStr, c_char};
use std::pin::pin;
use std::ptr::null_mut;
use std::time::Duration;

use tikv_jemallocator::Jemalloc;

use tokio::time::{Instant, MissedTickBehavior};

/// How often a running process checks whether it can return memory.
const EVERY: Duration = Duration::from_secs(10);
/// The checks at which the process settles: parts that start after the ready line have started by the first one, and the values that were
/// parsed during the start are no longer in the caches at the second one.
const SETTLES_AT: [u32; 2] = [1, 9];
/// How much the memory must have grown since the last return, in pages of 4 KiB: 4 MiB.
const GROWN_PAGES: u64 = 1_024;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Settings of jemalloc, which it reads at its first allocation. Threads share one arena: those of their own have partly used pages of each
/// size, several MiB in an idle process, and the caches of threads make most allocations without a lock. Freed pages go back to the
/// system after a second if the process goes on to allocate, and else in a quiet moment by [`watched`].
#[unsafe(export_name = "_rjem_malloc_conf")]
static SETTINGS: Option<&'static c_char> = {
    // SAFETY: the pointer is to a static string.
    Some(unsafe { &*c"narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:0".as_ptr() })
};
/// Returns the freed pages of all arenas: `MALLCTL_ARENAS_ALL` stands for them.
const PURGE: &CStr = c"arena.4096.purge";

/// Runs the work. Meanwhile returns memory: twice after the start, and then whenever the memory has grown.
pub async fn watched<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let mut ticks = tokio::time::interval_at(Instant::now() + EVERY, EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut checks, mut settled_pages) = (0_u32, 0);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = ticks.tick() => checks = checks.saturating_add(1),
        }
        if SETTLES_AT.contains(&checks) {
            settle();
        } else if resident_pages() > settled_pages + GROWN_PAGES {
            trim();
        } else {
            continue;
        }
        settled_pages = resident_pages();
    }
}

/// Returns memory that only the start needed. Code that runs again comes back from the page cache, a few pages at a
/// time. This is a third of an idle cluster's memory.
pub fn settle() {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    let program = std::env::current_exe().unwrap_or_default();
    for (start, end) in unchanged(&maps, &program.to_string_lossy()) {
        // SAFETY: the range is a private mapping of this program that cannot be written, and its pages are those of the
        // file. The kernel reads dropped pages from the file again, unchanged, at the next access.
        let advised = unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED) };
        if advised != 0 {
            tracing::debug!(error = %std::io::Error::last_os_error(), "mapped code stays");
        }
    }
    trim();
}

/// Returns freed memory to the system, except what the caches of threads have.
fn trim() {
    // SAFETY: the name is that of an action without input and output.
    let failed = unsafe { tikv_jemalloc_sys::mallctl(PURGE.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
    if failed != 0 {
        tracing::debug!(failed, "the allocator keeps freed pages");
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Resident memory in pages, from `/proc/self/statm` (proc(5)); 0 if that cannot be read.
fn resident_pages() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default()
}

/// The address ranges of the program's code and constants, from `/proc/self/smaps` (proc(5)). Constants with addresses
/// are not included, because the loader has written to them.
fn unchanged(smaps: &str, program: &str) -> Vec<(usize, usize)> {
    let (mut found, mut mapping) = (Vec::new(), None);
    for line in smaps.lines() {
        if let Some(found) = range(line) {
            mapping = is_constant(line, program).then_some(found);
        } else if let Some(anonymous) = line.strip_prefix("Anonymous:") {
            found.extend(mapping.take().filter(|_| anonymous.trim() == "0 kB"));
        }
    }
    found
}

/// The address range in the first line of a mapping's entry.
fn range(line: &str) -> Option<(usize, usize)> {
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

fn is_constant(head: &str, program: &str) -> bool {
    let mut words = head.splitn(6, ' ');
    matches!(words.nth(1), Some("r-xp" | "r--p")) && words.last().is_some_and(|path| path.trim_start() == program)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0c0000000-55d0c0400000 r--p 00000000 fe:00 1234                       /usr/bin/my skiff
Size:               4096 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
55d0c0400000-55d0c3000000 r-xp 00400000 fe:00 1234                       /usr/bin/my skiff
Size:              45056 kB
Anonymous:             0 kB
55d0c3000000-55d0c3100000 r--p 03000000 fe:00 1234                       /usr/bin/my skiff
Anonymous:          1024 kB
55d0c3100000-55d0c3200000 rw-p 03100000 fe:00 1234                       /usr/bin/my skiff
Anonymous:             0 kB
7f0000000000-7f0000100000 r-xp 00000000 fe:00 99                         /usr/lib/libc.so.6
Anonymous:             0 kB
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
Anonymous:             0 kB
";

    #[test]
    fn only_what_the_program_has_unchanged_is_found() {
        assert_eq!(unchanged(MAPS, "/usr/bin/my skiff"), [(0x55d0_c000_0000, 0x55d0_c040_0000), (0x55d0_c040_0000, 0x55d0_c300_0000)]);
    }

    #[test]
    fn the_allocator_has_our_settings_and_returns_pages() {
        let mut arenas = 0_u32;
        let mut size = size_of_val(&arenas);
        // SAFETY: the value of that name is an unsigned integer.
        let failed = unsafe { tikv_jemalloc_sys::mallctl(c"opt.narenas".as_ptr(), (&raw mut arenas).cast(), &raw mut size, null_mut(), 0) };
        assert_eq!((failed, arenas), (0, 1));
        let many: Vec<Vec<u8>> = (0..10_000).map(|_| vec![1; 4_096]).collect();
        let before = resident_pages();
        drop(many);
        trim();
        assert!(resident_pages() + 5_000 < before, "{before} pages, then {}", resident_pages());
    }

    #[test]
    fn a_process_goes_on_after_it() {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("a process has maps");
        let program = std::env::current_exe().expect("a process has a program");
        assert!(unchanged(&maps, &program.to_string_lossy()).len() >= 2);
        settle();
    }

    #[tokio::test(start_paused = true)]
    async fn work_goes_on_beside_it() {
        assert!(resident_pages() > 0);
        let work = async {
            tokio::time::sleep(EVERY * 12).await;
            7
        };
        assert_eq!(watched(work).await, 7);
    }
}
