// Package testserver runs real gRPC backends whose latency and faults are
// scripted: for tests, the demo and the benchmarks.
//
// A [Cluster] is one or many backends behind one target, on loopback sockets or
// in memory. Each attempt that reaches one is answered as a [Plan] says: after
// a latency drawn from a [Distribution], or as a [Script] decides by looking at the
// [Attempt]. The cluster counts what its backends saw, and records it attempt by
// attempt, so that a claim about hedging can be checked from the server's side.
//
//	cluster, err := testserver.Start(testserver.Config{
//		Backends: 3,
//		Latency:  testserver.LogNormal(5*time.Millisecond, 2*time.Millisecond),
//	})
//	if err != nil {
//		return err
//	}
//	defer cluster.Close()
//	conn, err := cluster.Client()
//
// With a [Limit], backends end connections on which a client resets many streams,
// as many servers and proxies do.
//
// A cluster in memory may be started inside a testing/synctest bubble: all its
// waiting is on timers, contexts and in-memory connections, so time there is
// virtual, and after Close no goroutine of it is left to keep the bubble open.
// Virtual time stands still while anything runs: a loop of calls that take no
// time waits for ever for a backend that the client is to reconnect to later.
package testserver
