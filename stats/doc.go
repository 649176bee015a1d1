// Package stats has the plain data that a scheduler of package hedge reports: [Counts] of calls and
// hedges, the state of each [Method], the [Outcome] of a call, and the events of hedge.Trace.
// Values are copies that the caller may keep and change. Import it as hedgestats beside another
// package stats, such as gRPC's.
package stats
