//! The limits for compiling a module, by its length: a small module gets little.

use std::time::Duration;

use runtimes_host::helper::Bounds;

/// Memory that any module has, how much more for each of its bytes, and the most.
const MEMORY_MIN: u64 = 512 << 20;
const MEMORY_PER_BYTE: u64 = 64;
const MEMORY_MAX: u64 = 4 << 30;
/// CPU time in the same way; the step is a MiB.
const CPU_MIN: Duration = Duration::from_secs(30);
const CPU_PER_MIB: Duration = Duration::from_secs(20);
const CPU_MAX: Duration = Duration::from_secs(600);
/// How much longer it may take by the clock, on a machine that is busy with other work.
const WALL_FACTOR: u32 = 2;
/// The time by the clock of work at a low priority, which may get no CPU for long.
const LOW_PRIORITY_WALL: Duration = Duration::from_secs(3_600);
/// Longest machine code.
const CODE_LEN_MAX: u64 = 2 << 30;

/// Modules from that length on are large: they wait for each other, and small modules do not wait for them.
pub(crate) const LARGE_FROM: u64 = 256 << 10;

/// Modules from that length on take long to compile: a second of CPU time and more.
pub(crate) const LONG_FROM: u64 = 1 << 20;

/// Modules from that length on are compiled without optimization at first. That saves a quarter of the CPU time, and the code needs a
/// fifth more when it runs; below that length the difference is less than a second.
pub(crate) const QUICK_FROM: u64 = 8 << 20;

/// The limits for a module of that many bytes, on a machine with so much memory and so many cores.
pub(crate) fn bounds(len: u64, machine_bytes: u64, cores: usize) -> Bounds {
    let mib = u32::try_from(len.div_ceil(1 << 20)).unwrap_or(u32::MAX);
    let memory_max = (machine_bytes / 4).clamp(MEMORY_MIN, MEMORY_MAX);
    let cpu = CPU_MIN.saturating_add(CPU_PER_MIB.saturating_mul(mib)).min(CPU_MAX);
    Bounds {
        memory_bytes: MEMORY_MIN.saturating_add(len.saturating_mul(MEMORY_PER_BYTE)).min(memory_max),
        // The compiler has one thread for each core.
        threads: u32::try_from(cores).unwrap_or(u32::MAX).saturating_add(4),
        cpu,
        wall: cpu * WALL_FACTOR,
        file_bytes: CODE_LEN_MAX,
    }
}

/// The same for work at a low priority: as much CPU time and memory, and longer by the clock.
pub(crate) fn low_priority(bounds: Bounds) -> Bounds {
    Bounds { wall: bounds.wall.max(LOW_PRIORITY_WALL), ..bounds }
}

/// Memory of this machine.
pub(crate) fn machine_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map_or(0, |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_may_take_more_the_longer_it_is() {
        let gib = 1 << 30;
        for (len, machine, memory_mib, cpu_s) in
            [(200, 16 * gib, 512, 50), (10 << 20, 16 * gib, 1_152, 230), (256 << 20, 16 * gib, 4_096, 600), (256 << 20, gib, 512, 600)]
        {
            let bounds = bounds(len, machine, 2);
            assert_eq!((bounds.memory_bytes >> 20, bounds.cpu.as_secs()), (memory_mib, cpu_s), "{len} bytes of {machine}");
        }
        assert!(machine_bytes() > 64 << 20);
        let usual = bounds(10 << 20, 16 * gib, 2);
        assert_eq!(low_priority(usual), Bounds { wall: Duration::from_secs(3_600), ..usual });
    }
}
