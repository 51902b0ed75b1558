//! What an object must be before it is stored: defaults, checks, patches.
