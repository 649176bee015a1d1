// Package compat holds tests of this library together with the rest of gRPC: other interceptors, outside and inside
// of its own, gRPC's retries and what else a call can be made with. It is a module of its own, so that what it needs
// reaches no user.
package compat
