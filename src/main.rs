//! The one binary: reads the command line and hands over to the part that was asked for.

mod access;
mod admin;
mod cli;
mod control;
mod db;
mod down;
mod duration;
#[cfg(debug_assertions)]
mod faults;
mod host;
mod images;
mod internal;
mod memory;
mod node;
mod place;
mod process;
mod renewal;
mod say;
mod server;
mod store;
mod token;
mod up;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use cli::{Cli, Command};

fn main() -> ExitCode {
    internal::serve_if_asked();
    let cli = Cli::parse();
    // Its DNS library tells of every query at `info`; who wants to read that names it.
    let filter = match EnvFilter::try_new(format!("hickory_server=warn,{}", cli.log)) {
        Ok(filter) => filter,
        Err(error) => {
            eprintln!("skiff: --log {:?}: {error}", cli.log);
            return ExitCode::FAILURE;
        }
    };
    // An event that cannot be written (a full disk) is lost; complaining of that would panic whoever logs.
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false).init();
    api_tasks::panics::install_hook();
    // One provider of cryptography for the whole process; this is its first use.
    let _first = rustls::crypto::ring::default_provider().install_default();
    host::allow_open_files();
    host::set_umask();
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::complaint(&format!("{error:#}"));
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
                println!("skiff {}", env!("CARGO_PKG_VERSION"));
                Ok(())
            }
        }
    }));
    // Threads that wait in the kernel (a pull, a compile) must not keep a stopped process alive.
    runtime.shutdown_background();
    done
}
