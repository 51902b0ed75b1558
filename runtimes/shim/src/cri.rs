//! Container logs as CRI lines: `2016-10-06T00:17:09.669794202Z stdout F text`. Pure: bytes of one
//! stream go in, whole log lines come out; the shims write them.
//!
//! As in containerd, a line longer than [`LINE_LEN_MAX`] is cut into pieces tagged `P` (partial),
//! and text that the stream ends with without a newline is a `P` line too.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The most bytes of text in one log line.
pub const LINE_LEN_MAX: usize = 16 * 1024;

/// The stream of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Stdout => b"stdout",
            Self::Stderr => b"stderr",
        }
    }
}

/// Turns one stream's bytes into log lines.
#[derive(Debug)]
pub struct LineWriter {
    stream: Stream,
    /// Text since the last newline; at most [`LINE_LEN_MAX`] bytes.
    pending: Vec<u8>,
}

impl LineWriter {
    /// For a stream without output so far.
    pub fn new(stream: Stream) -> Self {
        Self { stream, pending: Vec::new() }
    }

    /// Takes bytes and appends the log lines that are now complete to `out`.
    pub fn push(&mut self, mut bytes: &[u8], now: SystemTime, out: &mut Vec<u8>) {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            self.hold(line, now, out);
            self.emit(b" F ", now, out);
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.hold(bytes, now, out);
    }

    /// The stream has ended: the rest becomes a partial line.
    pub fn finish(&mut self, now: SystemTime, out: &mut Vec<u8>) {
        if !self.pending.is_empty() {
            self.emit(b" P ", now, out);
        }
    }

    fn hold(&mut self, mut text: &[u8], now: SystemTime, out: &mut Vec<u8>) {
        while self.pending.len() + text.len() > LINE_LEN_MAX {
            let (head, tail) = text.split_at(LINE_LEN_MAX - self.pending.len());
            self.pending.extend_from_slice(head);
            self.emit(b" P ", now, out);
            text = tail;
        }
        self.pending.extend_from_slice(text);
    }

    fn emit(&mut self, tag: &[u8], now: SystemTime, out: &mut Vec<u8>) {
        out.extend_from_slice(timestamp(now).as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.stream.name());
        out.extend_from_slice(tag);
        out.extend_from_slice(&self.pending);
        out.push(b'\n');
        self.pending.clear();
    }
}

/// RFC 3339 in UTC with nine decimals.
fn timestamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let seconds = since.as_secs();
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:09}Z", since.subsec_nanos())
}

/// Days since 1970-01-01 as year, month, day of the Gregorian calendar. Years begin in March, so that the leap day is the last
/// of its year.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pushes: &[&[u8]]) -> Vec<String> {
        let mut writer = LineWriter::new(Stream::Stdout);
        let mut out = Vec::new();
        for bytes in pushes {
            writer.push(bytes, UNIX_EPOCH, &mut out);
        }
        writer.finish(UNIX_EPOCH, &mut out);
        String::from_utf8(out).unwrap().lines().map(|line| line.replace("1970-01-01T00:00:00.000000000Z ", "")).collect()
    }

    #[test]
    fn lines_are_full_and_the_unfinished_rest_is_partial() {
        let cases: &[(&[&[u8]], &[&str])] = &[
            (&[b"a\nb\n"], &["stdout F a", "stdout F b"]),
            (&[b"a", b"b\n\n"], &["stdout F ab", "stdout F "]),
            (&[b"prompt: "], &["stdout P prompt: "]),
            (&[], &[]),
            (&[b""], &[]),
        ];
        for (pushes, wanted) in cases {
            assert_eq!(&lines(pushes), wanted);
        }
    }

    #[test]
    fn long_lines_are_cut_at_the_limit() {
        let long = vec![b'x'; LINE_LEN_MAX * 2];
        let got = lines(&[&long, b"y\n"]);
        let shape: Vec<_> = got.iter().map(|line| (&line[..8], line.len() - 9)).collect();
        assert_eq!(shape, [("stdout P", LINE_LEN_MAX), ("stdout P", LINE_LEN_MAX), ("stdout F", 1)]);
        // Exactly at the limit, a newline ends it whole.
        assert_eq!(lines(&[&long[..LINE_LEN_MAX], b"\n"])[0].len(), LINE_LEN_MAX + 9);
    }

    #[test]
    fn timestamps() {
        for (seconds, nanos, wanted) in [
            (0, 0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400, 5, "2000-02-29T00:00:00.000000005Z"),
            (1_475_713_029, 669_794_202, "2016-10-06T00:17:09.669794202Z"),
            (4_102_444_799, 0, "2099-12-31T23:59:59.000000000Z"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::new(seconds, nanos)), wanted);
        }
    }
}
