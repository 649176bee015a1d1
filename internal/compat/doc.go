// Package compat holds tests of this library together with the rest of gRPC: interceptors outside
// and inside its own, gRPC's retries and other call features. It is a module of its own, so that
// its dependencies reach no user.
package compat
