package report

import (
	"testing"

	"github.com/grpchedge/hedge/bench/workload"
)

// TestPublishedNames checks that there is a workload for each published figure.
func TestPublishedNames(t *testing.T) {
	for name := range publishedFigures {
		workload.Named(name)
	}
}
