//! What groups have read from disks and written to them. Only the controller `io` of the unified hierarchy counts it reliably: version 1
//! does so only for devices with a scheduler or limit of their own.

use std::fs;

use super::Cgroups;
use super::group::Group;
use super::layout::Mode;
use super::stats::StatsReader;

/// The transfers between a group and a block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceIo {
    /// The device's major number.
    pub major: u32,
    /// The device's minor number.
    pub minor: u32,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Reads completed.
    pub reads: u64,
    /// Writes completed.
    pub writes: u64,
}

impl Cgroups {
    /// The transfers of the machine, by device. Blocks.
    pub fn io(&self) -> Vec<DeviceIo> {
        let root = self.layout.unified().filter(|_| self.mode() == Mode::V2);
        root.and_then(|root| fs::read_to_string(root.join("io.stat")).ok()).map(|text| parse(&text)).unwrap_or_default()
    }
}

impl StatsReader {
    /// The transfers of a group, including groups below it, by device. Blocks.
    pub fn io(&mut self, group: &Group) -> Vec<DeviceIo> {
        let text = group.unified_dir().and_then(|dir| self.text(&dir, "io.stat"));
        text.map(|text| parse(&text)).unwrap_or_default()
    }
}

fn parse(text: &str) -> Vec<DeviceIo> {
    // The last line of a text that was too long is not whole.
    let lines = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
    lines.lines().filter_map(parse_line).collect()
}

/// For example `8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0`. Some kernels put devices without transfers before it, in the same
/// line.
fn parse_line(line: &str) -> Option<DeviceIo> {
    let (major, minor) = line.split(' ').filter(|field| !field.contains('=')).filter_map(|field| field.split_once(':')).next_back()?;
    let number = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='))?.parse::<u64>().ok();
    Some(DeviceIo {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        read_bytes: number("rbytes")?,
        written_bytes: number("wbytes")?,
        reads: number("rios")?,
        writes: number("wios")?,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::layout::Layout;
    use super::*;

    const TEXT: &str = "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n\
                        7:0 7:1 253:16 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0 cost.usage=9\n\
                        7:2 \n\
                        259:0 rbytes=7 wby";

    #[test]
    fn each_device_has_its_transfers() {
        let disk = DeviceIo { major: 8, minor: 0, read_bytes: 4_096, written_bytes: 8_192, reads: 1, writes: 2 };
        let other = DeviceIo { major: 253, minor: 16, read_bytes: 1, written_bytes: 2, reads: 3, writes: 4 };
        assert_eq!(parse(TEXT), [disk, other]);
        assert!(parse("").is_empty());
    }

    #[test]
    fn a_group_has_the_transfers_of_its_file() {
        let root = tempfile::tempdir().expect("a directory");
        let group = Group::new(Arc::new(Layout::unified_at(root.path())), "burstable/pod");
        let dir = root.path().join(group.path());
        std::fs::create_dir_all(&dir).expect("a directory");
        assert!(StatsReader::default().io(&group).is_empty(), "the controller is off");
        std::fs::write(dir.join("io.stat"), TEXT).expect("a file");
        assert_eq!(StatsReader::default().io(&group).len(), 2);
    }
}
