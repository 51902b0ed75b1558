//! Why Redis did not do as it was asked; the guest gets the text. No text has a password.

use std::io;
use std::time::Duration;

use super::super::store::StoreFault;

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// What the store in memory rejects too.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// The server rejects user and password, or does not let them execute the command.
    #[error("access denied")]
    AccessDenied,
    /// The container's memory limit.
    #[error("no room: values count as memory of the container while they are sent and received")]
    Full,
    /// All connections are busy.
    #[error("no connection became free within {} s", .0.as_secs())]
    Busy(Duration),
    /// The server cannot be reached.
    #[error("connecting: {0}")]
    Connect(io::Error),
    /// The server did not accept a connection in time.
    #[error("no connection within {} s", .0.as_secs())]
    ConnectTimeout(Duration),
    /// The connection ended. Whether the command was executed is unknown.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    /// Whether the command was executed is unknown.
    #[error("no answer within {} s", .0.as_secs())]
    AnswerTimeout(Duration),
    /// The server speaks another protocol.
    #[error("the answer is not one of Redis")]
    Protocol,
    /// The bound on a reply.
    #[error("the answer is longer than {0} bytes")]
    ReplyTooLong(usize),
    /// An error of the server.
    #[error("{0}")]
    Server(String),
    /// An error of the server before it knew the user: its word alone, since the text may repeat the password.
    #[error("the server answered {command} with the error {word}")]
    Login {
        /// The command.
        command: &'static str,
        /// The first word of the error.
        word: String,
    },
    /// A cursor of `list-keys` that is not one of Redis.
    #[error("the cursor is not one of this store")]
    Cursor,
}

impl Fault {
    /// The connection ended in the middle of a reply.
    pub fn ended() -> Self {
        Self::Broken(io::ErrorKind::UnexpectedEof.into())
    }

    /// Whether the connection, and with it perhaps every other one, is lost.
    pub fn is_of_connection(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::AnswerTimeout(_))
    }

    /// Of an error that the server returned for a command.
    pub fn of_server(text: String) -> Self {
        if is_denial(&text) { Self::AccessDenied } else { Self::Server(text) }
    }

    /// Of an error that the server returned while a connection was opened.
    pub fn of_login(command: &'static str, text: String) -> Self {
        // Before version 6, a wrong password is an `ERR`.
        if is_denial(&text) || text.starts_with("ERR invalid password") {
            return Self::AccessDenied;
        }
        if text == TOO_MANY_CLIENTS {
            return Self::Server(text);
        }
        Self::Login { command, word: text.split(' ').next().unwrap_or_default().to_owned() }
    }
}

/// The answer to whatever a client sends first.
const TOO_MANY_CLIENTS: &str = "ERR max number of clients reached";

fn is_denial(text: &str) -> bool {
    ["NOAUTH", "WRONGPASS", "NOPERM"].iter().any(|word| text.split(' ').next() == Some(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_are_no_errors_and_no_text_repeats_a_password() {
        let of_login = |text: &str| Fault::of_login("AUTH", text.to_owned());
        for denial in ["NOAUTH Authentication required.", "WRONGPASS invalid username-password pair or user is disabled.", "NOPERM no"] {
            assert!(matches!(Fault::of_server(denial.to_owned()), Fault::AccessDenied), "{denial}");
            assert!(matches!(of_login(denial), Fault::AccessDenied), "{denial}");
        }
        assert!(matches!(of_login("ERR invalid password"), Fault::AccessDenied));
        assert_eq!(of_login(TOO_MANY_CLIENTS).to_string(), TOO_MANY_CLIENTS);
        let unknown = "ERR unknown command `AUTH`, with args beginning with: `secret`, ";
        assert_eq!(of_login(unknown).to_string(), "the server answered AUTH with the error ERR");
        assert_eq!(Fault::of_server("NOPERMIT x".into()).to_string(), "NOPERMIT x");
    }
}
