//! A scripted runtime for tests and thousand-node trials.
