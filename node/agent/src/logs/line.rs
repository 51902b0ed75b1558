//! One CRI log line: `2016-10-06T00:17:09.669794202Z stdout F text`. Pure.

use jiff::Timestamp;

/// A parsed line; borrows from the file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// The time as it stands in the file.
    pub(crate) time: &'a [u8],
    /// `stdout` or `stderr`.
    pub(crate) stream: &'a [u8],
    /// The guest's line continues in the next one.
    pub(crate) partial: bool,
    /// The guest's bytes, without the end of the line.
    pub(crate) text: &'a [u8],
}

impl<'a> Line<'a> {
    /// `None` when the text is not a CRI log line.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut parts = bytes.splitn(4, |byte| *byte == b' ');
        let (time, stream, tag) = (parts.next()?, parts.next()?, parts.next()?);
        let text = parts.next().unwrap_or_default();
        let good = matches!(stream, b"stdout" | b"stderr") && !time.is_empty();
        good.then_some(Self { time, stream, partial: tag.first() == Some(&b'P'), text })
    }

    /// When it was written.
    pub(crate) fn at(&self) -> Option<Timestamp> {
        std::str::from_utf8(self.time).ok()?.parse().ok()
    }
}
