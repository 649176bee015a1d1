package stats

import "time"

// Class is what is known of a class of requests of a method: see hedge.WithClass.
type Class struct {
	// Class is the name that the class function gave it, or "(other)".
	Class string
	// Delay is the age at which a call gets its first hedge now; 0 while the class is being learned.
	Delay time.Duration
	// P50, P90 and P99 are quantiles of what primaries took over the window; 0 while nothing is known.
	P50, P90, P99 time.Duration
	// Choice is what the trigger hedge.Auto has in force; zero with another trigger, and while too little is known.
	Choice Choice
}
