// Package testpb holds the service that the tests, the demo and the benchmarks
// call: one method of each kind that gRPC knows, and one of each idempotency
// level. Every reply says which request it answers and which attempt produced it.
//
// The subpackages openpb, hybridpb and opaquepb hold the same reply in each of
// Go's protobuf APIs; a unary call can be decoded into any of them. lazypb holds a
// message that is decoded lazily.
//
// The stubs are written by make generate.
package testpb
