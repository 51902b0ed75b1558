//! The built-in admission plugins, each pure over a view of what is stored.
