//! Only for tests of debug builds: reads lines such as `panic node-agent/pod-manager` from the FIFO that
//! `SKIFF_TEST_FAULTS` names, and makes that task fail.

use std::path::PathBuf;

use api_tasks::{Tasks, fault};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::unix::pipe::OpenOptions;

/// Starts to read if the variable names a FIFO.
pub fn listen(tasks: &Tasks) -> anyhow::Result<()> {
    let Some(path) = std::env::var_os("SKIFF_TEST_FAULTS").map(PathBuf::from) else { return Ok(()) };
    // Also open for writing: otherwise the FIFO would end when one writer closes it.
    let fifo = OpenOptions::new().read_write(true).open_receiver(path)?;
    let stop = tasks.stopping().clone();
    tasks.own("faults", async move {
        let mut lines = BufReader::new(fifo).lines();
        while let Some(Ok(Some(line))) = stop.run_until_cancelled(lines.next_line()).await {
            if !fault::inject_line(&line) {
                tracing::error!(line, "not a fault");
            }
        }
    });
    Ok(())
}
