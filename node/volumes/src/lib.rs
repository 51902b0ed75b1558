//! One file a volume kind.
