package http_test

import (
	"fmt"
	. "net/http"
	"os"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
)

// suiteScheduler hedges the requests of all tests. It is nil in the mode passing.
var suiteScheduler = func() *hedge.Scheduler {
	options := []hedge.Option{hedge.WithAllMethods()}
	switch mode := os.Getenv("HEDGE_SUITE_MODE"); mode {
	case "passing":
		return nil
	case "untuned":
	case "5ms":
		options = append(options, hedge.WithWarmup(1<<40, 5*time.Millisecond), hedge.WithBudgetPercent(400))
	default:
		panic("HEDGE_SUITE_MODE is " + mode)
	}
	s, err := hedge.New(options...)
	if err != nil {
		panic(err)
	}
	return s
}()

// suiteTransport is the transport of a test's client.
type suiteTransport struct {
	RoundTripper
	base *Transport
}

// CloseIdleConnections is called by [Client.CloseIdleConnections].
func (t suiteTransport) CloseIdleConnections() { t.base.CloseIdleConnections() }

// suiteWrap is called at the end of newClientServerTest.
func suiteWrap(base *Transport) RoundTripper {
	return suiteTransport{hedgehttp.Transport(suiteScheduler, base), base}
}

// suiteUnwrap takes the place of type assertions.
func suiteUnwrap(rt RoundTripper) *Transport {
	if t, wrapped := rt.(suiteTransport); wrapped {
		return t.base
	}
	return rt.(*Transport)
}

// suiteCounts is called when all tests have ended.
func suiteCounts() {
	if suiteScheduler != nil {
		counts := suiteScheduler.Stats()
		fmt.Printf("hedges: %d sent in %d requests, %d held back because this process was busy\n", counts.Hedges, counts.Calls,
			counts.ClientBusy)
	}
}
