//! One connection to a Redis server, for one command at a time: a command that ends early takes its connection along, and a large value
//! is in the way of no other command.

use std::os::fd::AsRawFd as _;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use runtimes_contract::RedisServer;
use tokio::io::{BufReader, BufWriter};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Id};

use super::fault::Fault;
use super::resp::{self, Reply, Room};
use crate::budget::Charge;

/// A connection of a user, to a database.
pub struct Connection {
    stream: BufReader<BufWriter<TcpStream>>,
    /// The event loop that wakes whoever waits for it.
    event_loop: Id,
}

impl Connection {
    /// Connects, and says who connects.
    pub async fn open(server: &RedisServer, charge: &mut Charge) -> Result<Self, Fault> {
        let stream = TcpStream::connect((server.host.as_str(), server.port)).await.map_err(Fault::Connect)?;
        stream.set_nodelay(true).map_err(Fault::Connect)?;
        let mut connection = Self { stream: BufReader::new(BufWriter::new(stream)), event_loop: Handle::current().id() };
        match (&server.user, &server.password) {
            (Some(user), Some(password)) => connection.log_in("AUTH", &[user.as_bytes(), password.as_bytes()], charge).await?,
            (None, Some(password)) => connection.log_in("AUTH", &[password.as_bytes()], charge).await?,
            (_, None) => {}
        }
        if server.database != 0 {
            connection.log_in("SELECT", &[server.database.to_string().as_bytes()], charge).await?;
        }
        Ok(connection)
    }

    async fn log_in(&mut self, command: &'static str, arguments: &[&[u8]], charge: &mut Charge) -> Result<(), Fault> {
        match self.execute(&[&[command.as_bytes()], arguments].concat(), charge).await? {
            Reply::Done => Ok(()),
            Reply::Error(text) => Err(Fault::of_login(command, text)),
            Reply::Integer(_) | Reply::Value(_) | Reply::List(_) => Err(Fault::Protocol),
        }
    }

    /// Sends a command and reads the reply.
    pub async fn execute(&mut self, command: &[&[u8]], charge: &mut Charge) -> Result<Reply, Fault> {
        resp::write(&mut self.stream, command).await?;
        resp::read(&mut self.stream, &mut Room::new(charge)).await
    }

    /// Whether this event loop is its own.
    pub fn is_of_this_loop(&self) -> bool {
        self.event_loop == Handle::current().id()
    }

    /// Whether the peer has neither closed it nor sent anything: a server that has ended is noticed before a command is sent, and not when
    /// it is unknown whether the command was executed. The kernel knows best: the event loop may not have looked yet.
    pub fn is_silent(&self) -> bool {
        let fd = self.stream.get_ref().get_ref().as_raw_fd();
        let has_read_all = self.stream.buffer().is_empty();
        has_read_all && recv(fd, &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) == Err(Errno::EAGAIN)
    }
}
