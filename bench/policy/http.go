package policy

import (
	"net/http"
	"slices"
	"time"

	"github.com/cristalhq/hedgedhttp"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
)

// Transport returns a transport that sends requests by base and follows a policy, and its scheduler
// if it has one. The options are applied after the policy's own.
type Transport func(options []hedge.Option, base http.RoundTripper) (http.RoundTripper, *hedge.Scheduler, error)

// OursHTTP is this library with the given options.
func OursHTTP(own ...hedge.Option) Transport {
	return func(options []hedge.Option, base http.RoundTripper) (http.RoundTripper, *hedge.Scheduler, error) {
		s, err := hedge.New(slices.Concat([]hedge.Option{hedge.WithAllMethods()}, own, options)...)
		return hedgehttp.Transport(s, base, hedgehttp.WithFirstByte(sendsEvents)), s, err
	}
}

// sendsEvents selects the events of GET requests: the first one comes soon.
func sendsEvents(res *http.Response) bool {
	return res.Header.Get("Content-Type") == "text/event-stream"
}

// StaticHTTP is [Static] for HTTP workloads.
func StaticHTTP(delay time.Duration, hedges int) Transport {
	return OursHTTP(hedge.WithMaxHedges(hedges), hedge.WithBudgetPercent(Unbounded), hedge.WithTrigger(hedge.Fixed(delay)))
}

// hedgedHTTP is cristalhq/hedgedhttp, which hedges after a fixed delay, by the time to the response
// headers.
func hedgedHTTP(delay time.Duration) Transport {
	return func(_ []hedge.Option, base http.RoundTripper) (http.RoundTripper, *hedge.Scheduler, error) {
		rt, err := hedgedhttp.NewRoundTripper(delay, 2, base)
		return rt, nil, err
	}
}
