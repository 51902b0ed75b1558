//! The frames of `channel.k8s.io` websockets: a channel number and bytes; in the base64 forms the
//! number is a digit and the rest base64 text. Pure.

use axum::extract::ws::{CloseFrame, Message, close_code};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

/// Channels of exec.
pub(super) const STDIN: u8 = 0;
pub(super) const STDOUT: u8 = 1;
pub(super) const STDERR: u8 = 2;
pub(super) const ERROR: u8 = 3;
pub(super) const RESIZE: u8 = 4;
/// v5: the next byte names a channel that its sender closes.
pub(super) const CLOSE: u8 = 255;

/// Protocols, the best first.
pub(super) const PROTOCOLS: [&str; 7] = [
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "base64.channel.k8s.io",
];

/// How frames and the end are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// Frames are text.
    pub(super) base64: bool,
    /// The end is a JSON Status (v4 and later), else a text.
    pub(super) status: bool,
}

impl Form {
    /// The encoding of the negotiated protocol; without one it is the oldest.
    pub(super) fn for_protocol(protocol: Option<&str>) -> Self {
        let protocol = protocol.unwrap_or_default();
        Self { base64: protocol.contains("base64"), status: protocol.starts_with("v4") || protocol.starts_with("v5") }
    }

    /// A frame.
    pub(super) fn encode(self, channel: u8, bytes: &[u8]) -> Message {
        if self.base64 {
            return Message::text(format!("{channel}{}", STANDARD.encode(bytes)));
        }
        let mut frame = Vec::with_capacity(bytes.len() + 1);
        frame.push(channel);
        frame.extend_from_slice(bytes);
        Message::binary(frame)
    }

    /// A frame's channel and bytes; `None` when it is not a frame.
    pub(super) fn decode(self, message: Message) -> Option<(u8, Bytes)> {
        let bytes: Bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
            _ => return None,
        };
        let channel = *bytes.first()?;
        if !self.base64 {
            return Some((channel, bytes.slice(1..)));
        }
        let decoded = STANDARD.decode(bytes.get(1..)?).ok()?;
        Some((channel.checked_sub(b'0')?, Bytes::from(decoded)))
    }
}

/// The normal end: a client takes any other end for a broken stream.
pub(super) fn closing() -> Message {
    Message::Close(Some(CloseFrame { code: close_code::NORMAL, reason: "".into() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_go_both_ways() {
        for (protocol, frame) in
            [(Some("v5.channel.k8s.io"), Message::binary(vec![1, b'h', b'i'])), (Some("base64.channel.k8s.io"), Message::text("1aGk="))]
        {
            let form = Form::for_protocol(protocol);
            assert_eq!(form.encode(STDOUT, b"hi"), frame);
            assert_eq!(form.decode(frame), Some((STDOUT, Bytes::from_static(b"hi"))));
        }
        assert_eq!(Form::for_protocol(None).decode(Message::binary(Vec::new())), None);
        assert_eq!(Form::for_protocol(Some("base64.channel.k8s.io")).decode(Message::text("1%%")), None);
        assert!(!Form::for_protocol(Some("v3.channel.k8s.io")).status);
    }
}
