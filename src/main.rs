//! The one binary: reads the command line and runs the requested part.

#![warn(clippy::print_stdout, reason = "`println!` panics when the reader has gone; `say::line` does not")]

mod access;
mod admin;
mod autoscaling;
mod cli;
mod control;
mod cpus;
mod data_dir;
mod db;
mod down;
mod duration;
mod eviction;
mod external_metrics;
#[cfg(debug_assertions)]
mod faults;
mod host;
mod images;
mod internal;
mod logging;
mod memory;
mod node;
mod plugins;
mod pod_ranges;
mod process;
mod renewal;
mod say;
mod server;
mod shutdown;
mod store;
mod token;
mod up;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    internal::serve_if_internal();
    let cli = Cli::parse();
    if let Err(error) = logging::init(&cli.log, cli.log_format) {
        say::complaint(&format!("{error:#}"));
        return ExitCode::FAILURE;
    }
    api_tasks::panics::install_hook();
    // The whole process uses one cryptography provider. No other call came before, so this cannot fail.
    let _first = rustls::crypto::ring::default_provider().install_default();
    host::allow_open_files();
    host::set_umask();
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::complaint(&api_client::error::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(memory::watched(async {
        match command {
            Command::Up(options) => up::run(options).await,
            Command::Server(options) => server::run(options).await,
            Command::Agent(options) => node::run_alone(options).await,
            Command::Down(options) => down::run(options).await,
            Command::Image(command) => images::run(command).await,
            Command::Db(command) => db::run(command).await,
            Command::Token(command) => token::run(command).await,
            Command::Version => {
                say::line(concat!("skiff ", env!("CARGO_PKG_VERSION")));
                Ok(())
            }
        }
    }));
    // A thread that blocks in the kernel (a pull, a compilation) must not keep a stopped process alive.
    runtime.shutdown_background();
    done
}
