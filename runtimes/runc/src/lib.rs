//! OCI containers by runc, one shim each.
