//! The limits for unpacking a layer, by its compressed size: a small layer gets little.

use std::time::Duration;

use runtimes_host::helper::Bounds;

use super::process::Budget;

/// The bytes of one layer on the disk.
const LAYER_BYTES_MAX: u64 = 32 << 30;
/// The bytes of one image's layers on the disk.
pub(super) const IMAGE_BYTES_MAX: u64 = 64 << 30;
/// Bytes that any layer may have unpacked, however small it is compressed.
const BYTES_MIN: u64 = 1 << 30;
/// The factor by which a layer may grow beyond that. Text is compressed to a twentieth; only zeros are compressed to a
/// thousandth.
const GROWTH_MAX: u64 = 100;
/// The entries of one layer.
const ENTRIES_MAX: u64 = 1_000_000;
/// Memory: a window of 128 MiB, and the pages that wait for the disk.
const MEMORY_BYTES: u64 = 512 << 20;
/// Time by the clock that any layer has, and how much more for each MiB: a slow disk writes that.
const WALL_MIN: Duration = Duration::from_secs(60);
const WALL_PER_MIB: Duration = Duration::from_secs(2);
const WALL_MAX: Duration = Duration::from_secs(3_600);

/// Compressed layers from that size on are large: they wait for each other, and small layers do not wait for them.
pub(crate) const LARGE_FROM: u64 = 32 << 20;

/// The limits of a layer of that many bytes, when `image_left` remains of the image's limit and `disk_left` on the disk.
pub(super) fn budget(len: u64, image_left: u64, disk_left: u64, free_min: u64) -> Budget {
    let bytes = BYTES_MIN.saturating_add(len.saturating_mul(GROWTH_MAX));
    Budget { bytes: bytes.min(LAYER_BYTES_MAX).min(image_left).min(disk_left), entries: ENTRIES_MAX, free_min }
}

/// The limits of the process that unpacks a layer of that many bytes.
pub(super) fn bounds(len: u64, budget: Budget) -> Bounds {
    let mib = u32::try_from(len >> 20).unwrap_or(u32::MAX);
    let wall = WALL_MIN.saturating_add(WALL_PER_MIB.saturating_mul(mib)).min(WALL_MAX);
    Bounds { memory_bytes: MEMORY_BYTES, threads: 1, cpu: wall, wall, file_bytes: budget.bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_may_take_more_the_more_it_weighs() {
        let gib = 1 << 30;
        for (len, image_left, disk_left, wanted) in [
            (100, 64 * gib, 500 * gib, gib + 10_000),
            (100, 64 * gib, gib / 2, gib / 2),
            (gib, 64 * gib, 500 * gib, 32 * gib),
            (gib, 3 * gib, 500 * gib, 3 * gib),
        ] {
            assert_eq!(budget(len, image_left, disk_left, 0).bytes, wanted, "{len} of {image_left}");
        }
        let small = bounds(1_000, budget(1_000, u64::MAX, u64::MAX, 0));
        let large = bounds(100 << 30, budget(100 << 30, u64::MAX, u64::MAX, 0));
        assert_eq!((small.wall.as_secs(), large.wall.as_secs()), (60, 3_600));
    }
}
