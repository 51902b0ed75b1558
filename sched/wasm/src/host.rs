//! The state behind a plugin's store: the bounds on its memory and its log lines.

use wasmtime::ResourceLimiter;

use crate::values::Level;

/// The log lines of a plugin in one scheduling cycle; the last one says that there are more.
const LOG_LINES_MAX: u32 = 16;
/// The bytes of one log line.
const LOG_LINE_LEN_MAX: usize = 1_024;
/// Bytes of a table's element.
const ELEMENT_LEN: usize = 16;
/// The most instances, tables and memories of one component.
const INSTANCES_MAX: usize = 100;

/// The state behind a plugin's store.
pub(crate) struct Host {
    plugin: &'static str,
    memory_bytes_max: usize,
    memory_bytes: usize,
    /// Whether the plugin was refused memory.
    pub wanted_memory: bool,
    log_lines: u32,
    /// What the plugin wrote to its standard streams since the last end of a line.
    written: Vec<u8>,
}

impl Host {
    /// Of an instance that has no memory yet.
    pub fn new(plugin: &'static str, memory_bytes_max: usize) -> Self {
        Self { plugin, memory_bytes_max, memory_bytes: 0, wanted_memory: false, log_lines: 0, written: Vec::new() }
    }

    /// A scheduling cycle begins.
    pub fn begin_cycle(&mut self) {
        self.log_lines = 0;
    }

    /// Writes a line to the log, or leaves it out when the cycle has too many.
    pub fn log(&mut self, level: Level, message: &str) {
        let plugin = self.plugin;
        self.log_lines = self.log_lines.saturating_add(1);
        if self.log_lines == LOG_LINES_MAX {
            tracing::warn!(plugin, "further lines of a scheduler plugin are left out in this cycle");
        }
        if self.log_lines >= LOG_LINES_MAX {
            return;
        }
        let message = message.get(..message.floor_char_boundary(LOG_LINE_LEN_MAX)).unwrap_or_default();
        match level {
            Level::Error => tracing::error!(plugin, line = message, "scheduler plugin"),
            Level::Warn => tracing::warn!(plugin, line = message, "scheduler plugin"),
            Level::Info => tracing::info!(plugin, line = message, "scheduler plugin"),
            Level::Debug => tracing::debug!(plugin, line = message, "scheduler plugin"),
        }
    }

    /// Writes to a standard stream: whole lines go to the log.
    pub fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' || self.written.len() == LOG_LINE_LEN_MAX {
                self.flush();
            }
            if *byte != b'\n' {
                self.written.push(*byte);
            }
        }
    }

    /// Writes a line that has not ended to the log.
    pub fn flush(&mut self) {
        let line = std::mem::take(&mut self.written);
        if !line.is_empty() {
            self.log(Level::Info, &String::from_utf8_lossy(&line));
        }
    }

    fn grow(&mut self, bytes: usize) -> bool {
        let sum = self.memory_bytes.saturating_add(bytes);
        let may = sum <= self.memory_bytes_max;
        if may {
            self.memory_bytes = sum;
        } else {
            self.wanted_memory = true;
        }
        may
    }
}

/// All memories and tables of the instance share the bound.
impl ResourceLimiter for Host {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(maximum.is_none_or(|maximum| desired <= maximum) && self.grow(desired.saturating_sub(current)))
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let bytes = desired.saturating_sub(current).saturating_mul(ELEMENT_LEN);
        Ok(maximum.is_none_or(|maximum| desired <= maximum) && self.grow(bytes))
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        INSTANCES_MAX
    }

    fn memories(&self) -> usize {
        INSTANCES_MAX
    }
}
