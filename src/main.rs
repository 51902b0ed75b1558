//! The one binary: reads the command line and hands over to the part that was asked for.

mod access;
mod cli;
mod control;
mod db;
mod down;
mod duration;
mod host;
mod images;
mod node;
mod place;
mod server;
mod signals;
mod store;
mod up;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_new(&cli.log).unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    // One provider of cryptography for the whole process; this is its first use.
    let _first = rustls::crypto::ring::default_provider().install_default();
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("skiff: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        match command {
            Command::Up(options) => up::run(options).await,
            Command::Server(options) => server::run(options).await,
            Command::Agent(options) => node::run_alone(options).await,
            Command::Down(options) => down::run(&options.place()?).await,
            Command::Image(command) => images::run(command).await,
            Command::Db(command) => db::run(command).await,
            Command::Version => {
                println!("skiff {}", env!("CARGO_PKG_VERSION"));
                Ok(())
            }
        }
    });
    // Threads that wait in the kernel (a pull, a compile) must not keep a stopped process alive.
    runtime.shutdown_background();
    done
}
