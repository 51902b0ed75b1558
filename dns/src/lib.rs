//! Names: a pure record set and hickory as its server.
