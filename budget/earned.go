package budget

// Earned returns how many tokens calls have added so far, spent and forfeited ones included. It never falls.
func (b *Bucket) Earned() float64 {
	return float64(b.calls.Load()) * (float64(b.perCall) / token)
}
