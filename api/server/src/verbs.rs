//! What can be done to objects of any kind: one file a verb.

pub(crate) mod admit;
pub(crate) mod apply;
pub(crate) mod body;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod delete_collection;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod modify;
mod owners;
pub(crate) mod patch;
pub(crate) mod recording;
pub(crate) mod update;
pub(crate) mod watch;
