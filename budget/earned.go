package budget

// Earned returns how many tokens calls have added so far, spent and forfeited ones included. It never falls.
func (b *Bucket) Earned() float64 {
	r := b.rate.Load()
	if r == nil {
		return 0
	}
	return float64(r.at(b.units.Load())) / token
}
