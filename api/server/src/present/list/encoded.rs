//! The items of a list in protobuf. The encoding has the length of the list before the first item, so each item is
//! encoded before the response begins. Of a long list, only the first encoded items are kept. The others are encoded
//! again when they are sent: that costs time, but keeping them would need memory for as long as the slowest client
//! reads.

use std::sync::Arc;

use bytes::BytesMut;
use serde_json::Value;

use super::super::Presentation;
use api_cache::Object;
use api_wire::protobuf::{EncodeError, Form, ListForm};

/// Maximum number of bytes of encoded items that one list keeps.
const RETAINED_BYTES_MAX: usize = 1 << 20;
/// Number of bytes of JSON after which the task yields.
const YIELD_BYTES: usize = 256 << 10;

/// Items still to send.
pub(super) struct Encoded {
    presentation: Presentation,
    form: Form,
    list: ListForm,
    items: std::vec::IntoIter<Item>,
    len: usize,
}

enum Item {
    Ready(Vec<u8>),
    /// The object, and the length that its encoding had.
    Later(Arc<Object>, usize),
}

impl Encoded {
    pub(super) async fn make(presentation: &Presentation, objects: &[Arc<Object>]) -> Result<Self, EncodeError> {
        let (form, list) = (presentation.form()?, presentation.list_form()?);
        let mut items = Vec::with_capacity(objects.len());
        let (mut len, mut retained, mut since_yield) = (0, 0, 0);
        for object in objects {
            let json = presentation.json(object);
            let message = form.message(&json)?;
            len += list.item_len(message.len());
            since_yield += json.len();
            if retained < RETAINED_BYTES_MAX {
                retained += message.len();
                items.push(Item::Ready(message));
            } else {
                items.push(Item::Later(Arc::clone(object), message.len()));
            }
            if since_yield >= YIELD_BYTES {
                since_yield = 0;
                tokio::task::yield_now().await;
            }
        }
        Ok(Self { presentation: presentation.clone(), form, list, items: items.into_iter(), len })
    }

    /// Number of bytes of all items.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The bytes before the items.
    pub(super) fn head(&self, metadata: &Value) -> Result<Vec<u8>, EncodeError> {
        self.list.head(metadata, self.len)
    }

    /// Appends the next item; returns whether there was one.
    pub(super) fn append(&mut self, piece: &mut BytesMut) -> bool {
        let message = match self.items.next() {
            None => return false,
            Some(Item::Ready(message)) => message,
            Some(Item::Later(object, len)) => match self.form.message(&self.presentation.json(&object)) {
                Ok(message) if message.len() == len => message,
                // The kind's definition changed in the meantime. No message begins with a zero byte, so the client
                // notices the error and repeats the request.
                _ => vec![0; len],
            },
        };
        let mut head = Vec::with_capacity(12);
        self.list.item_head(&mut head, message.len());
        piece.extend_from_slice(&head);
        piece.extend_from_slice(&message);
        true
    }
}
