// Package otel holds tests of this library together with gRPC's OpenTelemetry plugin, and with
// otelgrpc. It is a module of its own, so that its dependencies reach no user.
package otel
