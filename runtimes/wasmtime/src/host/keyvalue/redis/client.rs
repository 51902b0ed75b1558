//! A container's client of a Redis server: its connections, and how long each step may take. A connection is opened when a command needs
//! one, so a container starts without its server, and finds it again after the server has restarted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use runtimes_contract::RedisServer;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::connection::Connection;
use super::fault::Fault;
use super::idle::Idle;
use super::resp::Reply;
use crate::budget::{Budget, Charge};

/// The most connections of one container. A command that finds all of them busy waits.
#[cfg(feature = "shim")]
const CONNECTIONS_MAX: usize = 16;
/// How long a connection may take, with the look-up of the name and the password.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long a command and its reply may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// What a command does, which decides whether it may be executed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing.
    Read,
    /// It changes keys.
    Write,
}

/// The client of one container.
pub struct Client {
    server: RedisServer,
    budget: Arc<Budget>,
    free: Semaphore,
    idle: Arc<Idle>,
}

impl Client {
    /// Not connected. Values in transit count to the budget of the container.
    #[cfg(feature = "shim")]
    pub fn new(server: RedisServer, budget: &Arc<Budget>) -> Self {
        Self { server, budget: budget.clone(), free: Semaphore::new(CONNECTIONS_MAX), idle: Arc::default() }
    }

    /// Takes bytes of the container's memory.
    pub fn charge(&self, bytes: usize) -> Result<Charge, Fault> {
        Charge::new(&self.budget, bytes).ok_or(Fault::Full)
    }

    /// Executes a command. The reply is not an error.
    pub async fn execute(&self, command: &[&[u8]], effect: Effect) -> Result<Reply, Fault> {
        let mut charge = self.charge(command.iter().map(|argument| argument.len()).sum())?;
        let waiting = timeout(ANSWER_WITHIN, self.free.acquire()).await;
        let Ok(Ok(_free)) = waiting else { return Err(Fault::Busy(ANSWER_WITHIN)) };
        if let Some(connection) = self.idle.take(self.free.available_permits()) {
            match self.execute_on(connection, command, &mut charge).await {
                Err(Fault::Broken(_)) if effect == Effect::Read => {}
                result => return result,
            }
        }
        let connection = timeout(CONNECT_WITHIN, Connection::open(&self.server, &mut charge)).await;
        let connection = connection.map_err(|_| Fault::ConnectTimeout(CONNECT_WITHIN))??;
        self.execute_on(connection, command, &mut charge).await
    }

    /// Executes a command on one connection, which is used again unless that fails.
    async fn execute_on(&self, mut connection: Connection, command: &[&[u8]], charge: &mut Charge) -> Result<Reply, Fault> {
        let executed = timeout(ANSWER_WITHIN, connection.execute(command, charge)).await;
        match executed.unwrap_or(Err(Fault::AnswerTimeout(ANSWER_WITHIN))) {
            Ok(reply) => {
                self.idle.put(connection);
                if let Reply::Error(text) = reply { Err(Fault::of_server(text)) } else { Ok(reply) }
            }
            Err(fault) => {
                if fault.is_of_connection() {
                    self.idle.clear();
                }
                Err(fault)
            }
        }
    }

    /// The server, without its password.
    pub fn server(&self) -> impl fmt::Display {
        &self.server
    }
}

#[cfg(test)]
#[cfg(feature = "shim")]
mod tests;
