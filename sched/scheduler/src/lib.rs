//! Queue, snapshot, cycle, bind; one file a plugin.
