//! What a start leaves behind: code that runs once, and memory that was freed. Who idles should weigh
//! what it uses.

/// Lets go of both. Code that is used again comes back from the page cache, a few pages at a time; of an
/// idle cluster's weight this is a third.
pub fn settle() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let program = std::env::current_exe().unwrap_or_default();
    for (start, end) in code(&maps, &program.to_string_lossy()) {
        // SAFETY: a private mapping of our program that nobody may write to: what is dropped is read in again
        // from the file, unchanged, when it is next run.
        let advised = unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED) };
        if advised != 0 {
            tracing::debug!(error = %std::io::Error::last_os_error(), "mapped code stays");
        }
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Where the code of that program is mapped, by `/proc/self/maps` (proc(5)).
fn code<'m>(maps: &'m str, program: &'m str) -> impl Iterator<Item = (usize, usize)> + 'm {
    maps.lines().filter_map(move |line| {
        let (range, rest) = line.split_once(' ')?;
        let is_ours = rest.starts_with("r-xp ") && rest.splitn(5, ' ').last()?.trim_start() == program;
        let (start, end) = range.split_once('-').filter(|_| is_ours)?;
        Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0c0000000-55d0c0400000 r--p 00000000 fe:00 1234                       /usr/bin/my skiff
55d0c0400000-55d0c3000000 r-xp 00400000 fe:00 1234                       /usr/bin/my skiff
55d0c3000000-55d0c3100000 rw-p 03000000 fe:00 1234                       /usr/bin/my skiff
7f0000000000-7f0000100000 r-xp 00000000 fe:00 99                         /usr/lib/libc.so.6
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn only_the_programs_own_code_is_found() {
        let found: Vec<_> = code(MAPS, "/usr/bin/my skiff").collect();
        assert_eq!(found, [(0x55d0_c040_0000, 0x55d0_c300_0000)]);
    }

    #[test]
    fn a_process_goes_on_after_it() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("a process has maps");
        let program = std::env::current_exe().expect("a process has a program");
        assert!(code(&maps, &program.to_string_lossy()).next().is_some());
        settle();
    }
}
