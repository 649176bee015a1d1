// Package stats has the plain data that a scheduler of package hedge reports: [Counts] of calls and hedges, what is known of each
// [Method], the [Outcome] of one call, and the events of hedge.Trace. Each type is a copy that the caller may keep and change.
package stats
