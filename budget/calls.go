package budget

// Calls returns what all calls so far cost, in calls of cost 1. It never falls, and does not depend on the share.
func (b *Bucket) Calls() float64 { return float64(b.units.Load()) / unitsPerCall }
