//! Who a request is from and what it may do: certificates, tokens, RBAC.
