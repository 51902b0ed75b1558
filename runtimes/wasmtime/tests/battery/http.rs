//! `wasi:http/proxy` components.
