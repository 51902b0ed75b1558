//! A reader between a tar stream and the library that parses it. It stops the stream at a record that the library would read
//! into memory completely: long names of GNU tar and extended headers of PAX have no length limit there, nor has a list of
//! sparse blocks. It must recognize every header that the library recognizes, in all odd cases: a header that passes here as
//! content is a header without a check.

use std::io::{self, Read};

use runtimes_host::helper::{Fault, size};
use tar::{EntryType, Header, PaxExtensions};

use super::verdict::Verdict;

/// Length of a block of a tar archive.
const BLOCK_LEN: usize = 512;
/// The most bytes of a long name; a path that the kernel accepts has 4,095.
const NAME_LEN_MAX: u64 = 8 << 10;
/// The most bytes of the extended headers of one entry: they contain extended attributes.
const EXTENDED_LEN_MAX: u64 = 1 << 20;
/// Most blocks that list the parts of a sparse file.
const SPARSE_BLOCKS_MAX: u32 = 4_096;

/// The next part of the stream.
enum Part {
    /// A header, or the zeros at the end.
    Header,
    /// One more block of a sparse file's list, with the number of blocks before it.
    Sparse { blocks: u32, then: u64 },
    /// An extended header, which is buffered: it may change the next entry's length.
    Extended { left: u64 },
    /// Content, which is not checked.
    Content { left: u64 },
    /// After the end.
    End,
}

/// See the head of this file.
pub(crate) struct Records<R> {
    inner: R,
    verdict: Verdict,
    part: Part,
    /// The bytes read so far of a block or of an extended header.
    buffer: Vec<u8>,
    /// The next entry's length by its extended header.
    len_by_pax: Option<u64>,
    /// Bytes that have passed.
    at: u64,
    /// The positions of headers, for tests.
    headers: Option<Vec<u64>>,
}

impl<R> Records<R> {
    pub(super) fn new(inner: R, verdict: Verdict) -> Self {
        Self { inner, verdict, part: Part::Header, buffer: Vec::with_capacity(BLOCK_LEN), len_by_pax: None, at: 0, headers: None }
    }

    /// A reader that records the positions of headers.
    pub(crate) fn noting(inner: R, verdict: Verdict) -> Self {
        Self { headers: Some(Vec::new()), ..Self::new(inner, verdict) }
    }

    /// The positions of headers.
    pub(crate) fn headers(&self) -> &[u64] {
        self.headers.as_deref().unwrap_or_default()
    }

    pub(super) fn into_inner(self) -> R {
        self.inner
    }

    /// Handles a part of the bytes that pass; returns how many.
    fn pass(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.part {
            Part::Header | Part::Sparse { .. } => {
                let taken = bytes.len().min(BLOCK_LEN - self.buffer.len());
                self.buffer.extend_from_slice(bytes.get(..taken).unwrap_or_default());
                if self.buffer.len() == BLOCK_LEN {
                    let block = std::mem::take(&mut self.buffer);
                    self.part = self.after(&block)?;
                }
                Ok(taken)
            }
            Part::Extended { left } => {
                let taken = clamp(left, bytes.len());
                self.buffer.extend_from_slice(bytes.get(..taken).unwrap_or_default());
                let left = left.saturating_sub(taken as u64);
                self.part = Part::Extended { left };
                if left == 0 {
                    let header = std::mem::take(&mut self.buffer);
                    self.len_by_pax = len_by_pax(&header);
                    self.part = Part::Header;
                }
                Ok(taken)
            }
            Part::Content { left } => {
                let taken = clamp(left, bytes.len());
                let left = left.saturating_sub(taken as u64);
                self.part = if left == 0 { Part::Header } else { Part::Content { left } };
                Ok(taken)
            }
            Part::End => Ok(bytes.len()),
        }
    }

    /// How many of so many bytes [`Records::pass`] handles.
    fn will_pass(&self, len: usize) -> u64 {
        let taken = match self.part {
            Part::Header | Part::Sparse { .. } => len.min(BLOCK_LEN - self.buffer.len()),
            Part::Extended { left } | Part::Content { left } => clamp(left, len),
            Part::End => len,
        };
        taken as u64
    }

    /// The part after a block.
    fn after(&mut self, block: &[u8]) -> io::Result<Part> {
        if let Part::Sparse { blocks, then } = self.part {
            if blocks >= SPARSE_BLOCKS_MAX {
                return Err(self.verdict.set(Fault::Limit(format!("a sparse file of more than {} parts", SPARSE_BLOCKS_MAX * 21))));
            }
            // The flag's place in a block of 21 entries (GNU tar's `struct sparse_header`).
            let more = block.get(504).is_some_and(|flag| *flag != 0);
            return Ok(if more { Part::Sparse { blocks: blocks + 1, then } } else { content(then) });
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(Part::End);
        }
        let Ok(block) = <&[u8; BLOCK_LEN]>::try_from(block) else { return Ok(Part::End) };
        let header = Header::from_byte_slice(block);
        // The library rejects a malformed header.
        let Ok(len) = header.entry_size() else { return Ok(Part::End) };
        if let Some(headers) = &mut self.headers {
            headers.push(self.at.saturating_sub(BLOCK_LEN as u64));
        }
        // Without one of the two magics the library treats these as other entries.
        let is_known = header.as_gnu().is_some() || header.as_ustar().is_some();
        match header.entry_type() {
            kind if !is_known => {
                let by_pax = self.len_by_pax.take().filter(|_| !is_extension(kind));
                Ok(content(by_pax.unwrap_or(len)))
            }
            EntryType::GNULongName | EntryType::GNULongLink if len > NAME_LEN_MAX => {
                Err(self.verdict.set(Fault::Limit(format!("a name of {}; at most {} are read", size(len), size(NAME_LEN_MAX)))))
            }
            EntryType::XHeader | EntryType::XGlobalHeader if len > EXTENDED_LEN_MAX => Err(self.verdict.set(Fault::Limit(format!(
                "an extended header of {}; at most {} are read",
                size(len),
                size(EXTENDED_LEN_MAX)
            )))),
            EntryType::XHeader if len > 0 => Ok(Part::Extended { left: padded(len) }),
            EntryType::GNULongName | EntryType::GNULongLink | EntryType::XHeader => Ok(content(len)),
            // An entry of its own, to which the extended header before it belongs.
            EntryType::XGlobalHeader => {
                self.len_by_pax = None;
                Ok(content(len))
            }
            kind => {
                let len = self.len_by_pax.take().unwrap_or(len);
                let listed = kind == EntryType::GNUSparse && header.as_gnu().is_some_and(tar::GnuHeader::is_extended);
                Ok(if listed { Part::Sparse { blocks: 0, then: len } } else { content(len) })
            }
        }
    }
}

impl<R: Read> Read for Records<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let mut rest = buffer.get(..read).unwrap_or_default();
        while !rest.is_empty() {
            // A block is whole when its last byte has passed.
            let will_pass = self.will_pass(rest.len());
            self.at = self.at.saturating_add(will_pass);
            let passed = self.pass(rest)?;
            rest = rest.get(passed..).unwrap_or_default();
        }
        Ok(read)
    }
}

fn content(len: u64) -> Part {
    match padded(len) {
        0 => Part::Header,
        left => Part::Content { left },
    }
}

fn padded(len: u64) -> u64 {
    len.checked_next_multiple_of(BLOCK_LEN as u64).unwrap_or(u64::MAX)
}

fn clamp(left: u64, len: usize) -> usize {
    usize::try_from(left).map_or(len, |left| left.min(len))
}

/// `size` of an extended header, followed by zeros. As in the library, nothing counts after a malformed field.
fn len_by_pax(bytes: &[u8]) -> Option<u64> {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let fields = PaxExtensions::new(bytes.get(..end)?);
    let size = fields.map_while(Result::ok).find(|field| field.key_bytes() == b"size")?;
    size.value().ok()?.parse().ok()
}

/// Kinds whose length an extended header does not change.
fn is_extension(kind: EntryType) -> bool {
    matches!(kind, EntryType::GNULongName | EntryType::GNULongLink | EntryType::XHeader | EntryType::XGlobalHeader)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with a length that its content need not have.
    fn header(kind: EntryType, len: u64) -> Vec<u8> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(len);
        header.set_path("x").expect("a path");
        header.set_cksum();
        header.as_bytes().to_vec()
    }

    /// The result for a stream that is read in small pieces.
    fn outcome(stream: &[u8]) -> (u64, Option<String>) {
        let verdict = Verdict::default();
        let mut records = Records::new(stream, verdict.clone());
        let (mut buffer, mut total) = ([0; 100], 0);
        loop {
            match records.read(&mut buffer) {
                Ok(0) => return (total, verdict.take().map(|fault| fault.to_string())),
                Ok(read) => total += read as u64,
                Err(_) => return (total, verdict.take().map(|fault| fault.to_string())),
            }
        }
    }

    #[test]
    fn records_that_would_fill_the_memory_are_rejected_at_their_header() {
        for (kind, len, wanted) in [
            (EntryType::XHeader, 1 << 40, "an extended header of 1024 GiB; at most 1 MiB are read"),
            (EntryType::XGlobalHeader, (1 << 20) + 1, "an extended header of 1 MiB"),
            (EntryType::GNULongName, 9_000, "a name of 9000 bytes"),
            (EntryType::GNULongLink, 1 << 33, "a name of 8 GiB"),
        ] {
            let mut stream = header(EntryType::Regular, 3);
            stream.extend([b'x'; 3].iter().chain(&[0; 509]));
            stream.extend(header(kind, len));
            stream.extend(vec![b'y'; 100_000]);
            let (total, fault) = outcome(&stream);
            assert!(fault.as_deref().is_some_and(|fault| fault.contains(wanted)), "{kind:?}: {fault:?}");
            assert!(total <= 1_600, "{kind:?}: {total}");
        }
    }

    #[test]
    fn the_content_of_entries_is_not_taken_for_headers() {
        let bomb = header(EntryType::XHeader, 1 << 40);
        let mut stream = header(EntryType::Regular, 512);
        stream.extend(&bomb);
        // An extended header that makes the next entry longer than its own header says.
        let text = b"12 size=512\n";
        stream.extend(header(EntryType::XHeader, text.len() as u64));
        stream.extend(text);
        stream.extend(vec![0; 512 - text.len()]);
        stream.extend(header(EntryType::Regular, 0));
        stream.extend(&bomb);
        stream.extend(vec![0; 1_024]);
        stream.extend(&bomb);
        assert_eq!(outcome(&stream), (stream.len() as u64, None));
    }

    /// A length that the library ignores must not hide the following headers.
    #[test]
    fn headers_are_where_the_library_sees_them() {
        let pax = |text: &str| {
            let mut bytes = header(EntryType::XHeader, text.len() as u64);
            bytes.extend(text.as_bytes());
            bytes.resize(bytes.len().next_multiple_of(BLOCK_LEN), 0);
            bytes
        };
        let mut old = Header::new_old();
        old.set_entry_type(EntryType::XHeader);
        old.set_size(13);
        old.set_cksum();
        let mut of_old = old.as_bytes().to_vec();
        of_old.extend(b"13 size=4096\n");
        of_old.resize(1_024, 0);
        let file = header(EntryType::Regular, 0);
        let bomb = [header(EntryType::GNULongName, 1 << 33), vec![b'y'; 8_192]].concat();
        for (what, hidden) in [
            ("after a malformed field", [pax("nonsense\n13 size=4096\n"), file.clone()].concat()),
            ("before a global header", [pax("13 size=4096\n"), header(EntryType::XGlobalHeader, 0), file.clone()].concat()),
            ("in an old header", [of_old, file.clone()].concat()),
        ] {
            let (_, fault) = outcome(&[hidden, bomb.clone()].concat());
            assert!(fault.as_deref().is_some_and(|fault| fault.contains("a name of 8 GiB")), "{what}: {fault:?}");
        }
    }

    #[test]
    fn a_list_of_sparse_parts_has_an_end() {
        let mut sparse = Header::new_gnu();
        sparse.set_entry_type(EntryType::GNUSparse);
        sparse.set_size(0);
        sparse.as_gnu_mut().expect("a GNU header").isextended = [1];
        sparse.set_cksum();
        let mut stream = sparse.as_bytes().to_vec();
        let mut block = [0; BLOCK_LEN];
        block[504] = 1;
        stream.extend(block.repeat(5_000));
        let (_, fault) = outcome(&stream);
        assert_eq!(fault.as_deref(), Some("a sparse file of more than 86016 parts"));
    }
}
