//! Controllers: a pure plan and a thin apply each, in one shared loop.
