//! What stands on the wire: paths, queries, media types, bodies in, objects, lists, tables and
//! watch frames out. Nothing here decides what happens to an object.

pub(crate) mod accept;
pub(crate) mod body;
pub(crate) mod deadline;
pub(crate) mod gzip;
pub(crate) mod holding;
pub(crate) mod list;
pub(crate) mod options;
pub(crate) mod path;
pub(crate) mod present;
pub(crate) mod pretty;
pub(crate) mod protobuf;
pub(crate) mod query;
pub(crate) mod socket;
pub(crate) mod stream;
pub(crate) mod table;
pub(crate) mod warnings;
pub(crate) mod yaml;
