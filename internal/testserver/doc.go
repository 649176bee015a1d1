// Package testserver runs real gRPC backends with scripted latency and faults, for tests, the demo
// and the benchmarks.
//
// A [Cluster] is one or more backends behind one target, on loopback sockets or in memory. Each
// attempt is answered by a [Plan]: after a latency drawn from a [Distribution], or as a [Script]
// decides from the [Attempt]. The cluster counts and records the attempts, so that a claim about
// hedging can be checked on the server's side.
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
// With a [Limit], backends close connections on which a client resets many streams, as many servers
// and proxies do.
//
// A cluster in memory may be started inside a testing/synctest bubble. It waits only on timers,
// contexts and in-memory connections, so time is virtual, and after Close none of its goroutines
// keeps the bubble open. Virtual time does not advance while a goroutine runs: a loop of calls that
// take no time never sees a backend that the client reconnects to later.
package testserver
