//! RESP2, the protocol of Redis: a command is a list of byte strings, a reply is a value or a list of replies. What is read has a bound,
//! and counts as the container's memory before it is read: a length is only what the server claims. The crates `redis` and
//! `redis-protocol` decode replies that are in memory as a whole.

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::fault::Fault;
use crate::budget::Charge;

/// The most bytes of a reply, with what its values cost beside their bytes.
const REPLY_LEN_MAX: usize = 64 << 20;
/// What a value of a list costs beside its bytes: the list grows by doubling.
const VALUE_LEN: usize = 2 * size_of::<Reply>();
/// The longest line: that of an error.
const LINE_LEN_MAX: u64 = 8 << 10;
/// The lists in each other: the answer to `SCAN` has two.
const DEPTH_MAX: usize = 2;

/// A reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// The command was executed.
    Done,
    /// It was not: a word that names the error, then a text.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes, or none.
    Value(Option<Vec<u8>>),
    /// Several replies.
    List(Vec<Reply>),
}

/// A reply, or the length of the list that follows.
enum Element {
    Reply(Reply),
    List(usize),
}

/// Sends a command.
pub async fn write(stream: &mut (impl AsyncWrite + Unpin), command: &[&[u8]]) -> Result<(), Fault> {
    stream.write_all(format!("*{}\r\n", command.len()).as_bytes()).await?;
    for argument in command {
        stream.write_all(format!("${}\r\n", argument.len()).as_bytes()).await?;
        stream.write_all(argument).await?;
        stream.write_all(b"\r\n").await?;
    }
    Ok(stream.flush().await?)
}

/// Reads a reply. After an error, what follows in the stream has no meaning.
pub async fn read(stream: &mut (impl AsyncBufRead + Unpin), room: &mut Room<'_>) -> Result<Reply, Fault> {
    // The lists that are incomplete, each with the number of replies that it lacks.
    let mut lists: Vec<(usize, Vec<Reply>)> = Vec::new();
    loop {
        room.take(VALUE_LEN)?;
        let mut reply = match read_element(stream, room).await? {
            Element::List(0) => Reply::List(Vec::new()),
            Element::List(_) if lists.len() == DEPTH_MAX => return Err(Fault::Protocol),
            Element::List(len) => {
                lists.push((len, Vec::new()));
                continue;
            }
            Element::Reply(reply) => reply,
        };
        loop {
            let Some((missing, mut replies)) = lists.pop() else { return Ok(reply) };
            replies.push(reply);
            if missing > 1 {
                lists.push((missing - 1, replies));
                break;
            }
            reply = Reply::List(replies);
        }
    }
}

async fn read_element(stream: &mut (impl AsyncBufRead + Unpin), room: &mut Room<'_>) -> Result<Element, Fault> {
    let line = read_line(stream).await?;
    let (kind, rest) = line.split_at_checked(1).ok_or(Fault::Protocol)?;
    let number = || rest.parse::<i64>().map_err(|_| Fault::Protocol);
    let reply = match kind {
        "+" => Reply::Done,
        "-" => {
            room.take(rest.len())?;
            Reply::Error(rest.to_owned())
        }
        ":" => Reply::Integer(number()?),
        "$" => Reply::Value(read_value(stream, number()?, room).await?),
        "*" => match number()? {
            -1 => Reply::Value(None),
            len => return usize::try_from(len).map(Element::List).map_err(|_| Fault::Protocol),
        },
        _ => return Err(Fault::Protocol),
    };
    Ok(Element::Reply(reply))
}

/// A line without its end. Text of an error that is not UTF-8 is replaced.
async fn read_line(stream: &mut (impl AsyncBufRead + Unpin)) -> Result<String, Fault> {
    let mut line = Vec::new();
    stream.take(LINE_LEN_MAX).read_until(b'\n', &mut line).await?;
    match line.strip_suffix(b"\r\n") {
        Some(text) => Ok(String::from_utf8_lossy(text).into_owned()),
        None if line.ends_with(b"\n") || u64::try_from(line.len()) == Ok(LINE_LEN_MAX) => Err(Fault::Protocol),
        None => Err(Fault::ended()),
    }
}

async fn read_value(stream: &mut (impl AsyncBufRead + Unpin), len: i64, room: &mut Room<'_>) -> Result<Option<Vec<u8>>, Fault> {
    if len == -1 {
        return Ok(None);
    }
    let len = usize::try_from(len).map_err(|_| Fault::Protocol)?;
    room.take(len)?;
    let mut value = vec![0; len];
    stream.read_exact(&mut value).await?;
    let mut end = [0; 2];
    stream.read_exact(&mut end).await?;
    if end == *b"\r\n" { Ok(Some(value)) } else { Err(Fault::Protocol) }
}

/// The memory of one command and its reply.
pub struct Room<'a> {
    charge: &'a mut Charge,
    reply_len: usize,
}

impl<'a> Room<'a> {
    /// Beside what is charged already.
    pub fn new(charge: &'a mut Charge) -> Self {
        Self { charge, reply_len: 0 }
    }

    fn take(&mut self, len: usize) -> Result<(), Fault> {
        self.reply_len = self.reply_len.checked_add(len).filter(|&sum| sum <= REPLY_LEN_MAX).ok_or(Fault::ReplyTooLong(REPLY_LEN_MAX))?;
        let bytes = self.charge.bytes().saturating_add(len);
        if self.charge.resize(bytes) { Ok(()) } else { Err(Fault::Full) }
    }
}

#[cfg(test)]
#[cfg(feature = "shim")]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::budget::Budget;

    /// Reads a reply from these bytes, with so much memory.
    async fn read_with(bytes: &[u8], memory: usize) -> Result<Reply, String> {
        let mut charge = Charge::new(&Arc::new(Budget::new(Some(memory))), 0).ok_or("no memory")?;
        let mut stream = bytes;
        let reply = read(&mut stream, &mut Room::new(&mut charge)).await.map_err(|fault| fault.to_string())?;
        assert!(stream.is_empty(), "the next reply begins where this one ends");
        Ok(reply)
    }

    fn value(text: &str) -> Reply {
        Reply::Value(Some(text.into()))
    }

    #[tokio::test]
    async fn a_command_is_a_list_of_byte_strings() {
        let mut bytes = Vec::new();
        write(&mut bytes, &[b"SET", b"", b"a\r\nb"]).await.unwrap();
        assert_eq!(bytes, b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\na\r\nb\r\n");
    }

    #[tokio::test]
    async fn replies_are_read() {
        for (bytes, wanted) in [
            ("+OK\r\n", Reply::Done),
            ("-ERR no\r\n", Reply::Error("ERR no".into())),
            (":-42\r\n", Reply::Integer(-42)),
            ("$-1\r\n", Reply::Value(None)),
            ("*-1\r\n", Reply::Value(None)),
            ("$0\r\n\r\n", value("")),
            ("$4\r\na\r\nb\r\n", value("a\r\nb")),
            ("*0\r\n", Reply::List(vec![])),
            ("*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n", Reply::List(vec![value("0"), Reply::List(vec![value("a"), value("b")])])),
            (
                "*3\r\n*0\r\n*1\r\n:1\r\n$-1\r\n",
                Reply::List(vec![Reply::List(vec![]), Reply::List(vec![Reply::Integer(1)]), Reply::Value(None)]),
            ),
        ] {
            assert_eq!(read_with(bytes.as_bytes(), 1 << 20).await, Ok(wanted), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn what_is_no_reply_is_rejected() {
        let endless = "-".repeat(2 * usize::try_from(LINE_LEN_MAX).unwrap());
        for bytes in [
            "HTTP/1.1 400 Bad Request\r\n",
            "\r\n",
            ":\r\n",
            ":1e3\r\n",
            "$-2\r\n",
            "*-2\r\n",
            "$1\r\nabc\r\n",
            "\u{e9}\r\n",
            "*1\r\n*1\r\n*1\r\n:1\r\n",
            "+OK\n",
            &endless,
        ] {
            assert_eq!(read_with(bytes.as_bytes(), 1 << 20).await, Err(Fault::Protocol.to_string()), "{bytes:?}");
        }
        for bytes in ["", "+OK", "$5\r\nab", "$2\r\nab", "*2\r\n:1\r\n"] {
            assert!(read_with(bytes.as_bytes(), 1 << 20).await.unwrap_err().starts_with("the connection broke"), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn a_claimed_length_takes_no_memory() {
        let too_long = Fault::ReplyTooLong(REPLY_LEN_MAX);
        for (bytes, wanted) in [
            ("$9223372036854775807\r\n", &too_long),
            ("$67108865\r\n", &too_long),
            ("*2\r\n$40000000\r\n", &Fault::Full),
            ("$1048577\r\n", &Fault::Full),
        ] {
            assert_eq!(read_with(bytes.as_bytes(), 1 << 20).await, Err(wanted.to_string()), "{bytes:?}");
        }
        assert!(read_with(b"*9223372036854775807\r\n:1\r\n", 1 << 20).await.unwrap_err().starts_with("the connection broke"));
        let many = format!("*1000000\r\n{}", ":1\r\n".repeat(1_000_000));
        assert_eq!(read_with(many.as_bytes(), 1 << 20).await, Err(Fault::Full.to_string()), "numbers take memory too");
        let many = format!("*1000\r\n{}", format!("-{}\r\n", "x".repeat(4_000)).repeat(1_000));
        assert_eq!(read_with(many.as_bytes(), 1 << 20).await, Err(Fault::Full.to_string()), "and so do errors");
        assert_eq!(read_with(b"$10000\r\n", 10_000).await, Err(Fault::Full.to_string()));
    }
}
