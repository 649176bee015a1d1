// Package testpb holds the service of the tests, the demo and the benchmarks: one method of each kind
// that gRPC knows, and one of each idempotency level. Every reply identifies its request and the
// attempt that produced it.
//
// The subpackages openpb, hybridpb and opaquepb hold the same reply in each of Go's protobuf APIs; a
// unary call can be decoded into any of them. lazypb holds a message that is decoded lazily.
//
// make generate writes the stubs.
package testpb
