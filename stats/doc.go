// Package stats has the plain data that a scheduler of package hedge reports: [Counts] of calls and hedges, what is known of each
// [Method], the [Outcome] of one call, and the events of hedge.Trace. Each type is a copy that the caller may keep and change.
// Import it as hedgestats beside another package stats, such as gRPC's.
package stats
