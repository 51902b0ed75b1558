//! The server as its clients see it, in process.
