//! Services and what is behind and in front of them, one file a kind.

mod endpoints;
mod endpointslice;
mod ingress;
mod networkpolicy;
mod service;

#[cfg(test)]
mod tests;
