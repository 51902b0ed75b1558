//! OpenAPI schemas of the served kinds with the facts their types lack.
