package settings

import "github.com/grpchedge/hedge/stats"

// Trace is a set of functions that are called when something happens: see hedge.Trace. None is called under a lock. Those
// that are nil are not called.
type Trace struct {
	HedgeSent           func(stats.HedgeSent)
	HedgeHeldBack       func(stats.HedgeHeldBack)
	AttemptLost         func(stats.AttemptLost)
	CallDecided         func(stats.CallDecided)
	HedgingStepped      func(stats.HedgingStepped)
	DistributionChanged func(stats.DistributionChanged)

	NothingSelected func(NothingSelected)
	OddCost         func(OddCost)
}

// OddCost is the first invalid cost of a method's requests.
type OddCost struct {
	Target, Method string
	Cost           float64
}

// NothingSelected says of a target that none of its first calls was of a method that the options select.
type NothingSelected struct {
	Target  string
	Why     string   // a sentence without its capital letter and full stop, which also says what to do
	Methods []string // that were seen, sorted; a few of them
	More    int      // methods that are left out
}
