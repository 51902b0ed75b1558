//! `skiff server`: the control plane alone.

use crate::cli::Server;
use crate::control::ControlPlane;
use crate::process::Process;
use crate::{control, host, say, token};

/// Runs until a signal.
pub async fn run(options: Server) -> anyhow::Result<()> {
    let data_dir = options.data_dir.open()?;
    let _lock = data_dir.lock("server")?;
    let process = Process::begin()?;
    let node_ip = host::node_ip(options.control.advertise_address)?;
    let control = ControlPlane::new(data_dir, options.ranges, options.control, node_ip);
    let serving = async {
        let running = control::start(&control, &process).await?;
        let token = token::of_server(&running, options.join_token_ttl).await?;
        say::ready(&format!(
            "skiff is ready: export KUBECONFIG={} and join nodes with: skiff agent --server {} --token \"$(cat {})\"",
            running.kubeconfig.display(),
            running.url,
            token.display()
        ));
        process.cancel.cancelled().await;
        running.stop().await;
        Ok(())
    };
    process.run(serving).await
}
