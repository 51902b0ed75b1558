//! The records of a shim about its container: the pid record when it starts, the exit record when it ends. They are plain lines
//! of `key value`, closed by `end`, so that a shim needs no JSON and an incomplete record is never trusted.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use runtimes_contract::Exit;
use runtimes_host::process::ProcessRef;

/// The most bytes of a message in a record.
const MESSAGE_LEN_MAX: usize = 2048;

/// The annotation of an OCI spec that names the process whose PID namespace the container joins, as [`ProcessRef::encode`]
/// writes it.
pub const TARGET_ANNOTATION: &str = "dev.skiff.target";

/// The processes of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PidRecord {
    /// The process that lives as long as the container and writes the exit record.
    pub shim: ProcessRef,
    /// The container's first process; for WASM that is the shim itself.
    pub init: ProcessRef,
    /// When it was started, in ms since the epoch.
    pub started_at_ms: u64,
}

impl PidRecord {
    /// As text.
    pub fn encode(&self) -> String {
        format!(
            "shim {} {}\ninit {} {}\nboot {}\nstarted {}\nend\n",
            self.shim.pid, self.shim.start_ticks, self.init.pid, self.init.start_ticks, self.shim.boot_id, self.started_at_ms
        )
    }

    /// From text; `None` when it is not complete.
    pub fn decode(text: &str) -> Option<Self> {
        let fields = Fields::parse(text)?;
        let boot_id = fields.get("boot")?;
        let process = |key| {
            let (pid, start_ticks) = fields.get(key)?.split_once(' ')?;
            let pid = pid.parse().ok().filter(|&pid| pid > 0)?;
            Some(ProcessRef { pid, start_ticks: start_ticks.parse().ok()?, boot_id: boot_id.to_owned() })
        };
        Some(Self { shim: process("shim")?, init: process("init")?, started_at_ms: fields.get("started")?.parse().ok()? })
    }
}

/// An [`Exit`] as text.
pub fn encode_exit(exit: &Exit) -> String {
    let mut text = format!("code {}\n", exit.code);
    if let Some(signal) = exit.signal {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "signal {signal}");
    }
    let message = exit.message.get(..floor_char_boundary(&exit.message, MESSAGE_LEN_MAX)).unwrap_or_default();
    let _ = writeln!(text, "oom {}\nfinished {}\nmessage {}\nend", exit.oom_killed, exit.finished_at_ms, message.escape_default());
    text
}

/// An [`Exit`] from text; `None` when it is not complete.
pub fn decode_exit(text: &str) -> Option<Exit> {
    let fields = Fields::parse(text)?;
    let signal = match fields.get("signal") {
        Some(signal) => Some(signal.parse().ok()?),
        None => None,
    };
    Some(Exit {
        code: fields.get("code")?.parse().ok()?,
        signal,
        oom_killed: fields.get("oom")?.parse().ok()?,
        finished_at_ms: fields.get("finished")?.parse().ok()?,
        message: unescape(fields.get("message")?),
    })
}

/// Now, in ms since the epoch.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

struct Fields<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let body = text.strip_suffix("end\n")?;
        Some(Self(body.lines().filter_map(|line| line.split_once(' ')).collect()))
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }
}

fn floor_char_boundary(text: &str, len_max: usize) -> usize {
    (0..=len_max.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// Undoes [`str::escape_default`].
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        if next != '\\' {
            out.push(next);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('u') => {
                let code: String = chars.by_ref().skip(1).take_while(|&hex| hex != '}').collect();
                out.extend(u32::from_str_radix(&code, 16).ok().and_then(char::from_u32));
            }
            other => out.extend(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_survive_the_way_to_disk_and_torn_ones_are_rejected() {
        let exit =
            Exit { code: 134, signal: None, oom_killed: true, finished_at_ms: 7, message: "wasm trap: \"x\"\n\tat \\ é 🦀\r".into() };
        let text = encode_exit(&exit);
        assert_eq!(decode_exit(&text), Some(exit.clone()));
        for len in 0..text.len() {
            assert_eq!(decode_exit(&text[..len]), None, "cut at {len}");
        }
        let killed = Exit { signal: Some(9), ..exit };
        assert_eq!(decode_exit(&encode_exit(&killed)), Some(killed));
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let exit = Exit { code: 1, signal: None, oom_killed: false, finished_at_ms: 0, message: "é".repeat(5000) };
        let back = decode_exit(&encode_exit(&exit)).unwrap();
        assert_eq!(back.message.len(), MESSAGE_LEN_MAX);
    }

    #[test]
    fn pid_records_survive_too() {
        let process = |pid| ProcessRef { pid, start_ticks: 99, boot_id: "b-1".into() };
        let record = PidRecord { shim: process(10), init: process(11), started_at_ms: 5 };
        let text = record.encode();
        assert_eq!(PidRecord::decode(&text), Some(record));
        assert_eq!(PidRecord::decode(&text[..text.len() - 1]), None);
        for pid in ["0", "-1", ""] {
            assert_eq!(PidRecord::decode(&text.replace("shim 10", &format!("shim {pid}"))), None, "{pid:?} is no process");
        }
    }
}
