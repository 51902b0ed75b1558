//! Container logs: CRI lines in files that containers write and this module reads, rotates and
//! follows.

mod changes;
mod line;
pub(crate) mod read;
pub(crate) mod rotate;

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

pub(crate) use changes::Changes;
pub(crate) use line::Line;

/// The bytes at the end of a log among which its last lines are searched.
const TAIL_LEN_MAX: u64 = 64 * 1_024;

/// The beginning of a text file; `None` when it cannot be read. A guest may have written the file, so only a limited part is
/// read.
pub(crate) fn head(path: &Path, len_max: usize) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(u64::try_from(len_max).ok()?).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The text of a log's last lines, within both limits.
pub(crate) fn tail_text(path: &Path, lines_max: usize, len_max: usize) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let len = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(TAIL_LEN_MAX))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL_LEN_MAX).read_to_end(&mut bytes).ok()?;
    let lines: Vec<Line<'_>> = bytes.split(|byte| *byte == b'\n').filter_map(Line::parse).collect();
    let mut text = String::new();
    for line in lines.iter().skip(lines.len().saturating_sub(lines_max)) {
        text.push_str(&String::from_utf8_lossy(line.text));
        if !line.partial {
            text.push('\n');
        }
    }
    let over = text.len().saturating_sub(len_max);
    let from = (over..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text.get(from..).map(str::to_owned)
}

#[cfg(test)]
mod tests;
