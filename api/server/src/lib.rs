//! The HTTPS face: verbs, subresources, watch cache, discovery, OpenAPI, tables.
