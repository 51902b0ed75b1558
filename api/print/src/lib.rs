//! Tables: printer columns and cells of every served kind.
