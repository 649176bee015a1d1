package hedgehttp_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// answering is a transport that does nothing.
type answering struct{ res http.Response }

func (a *answering) RoundTrip(*http.Request) (*http.Response, error) {
	res := a.res
	return &res, nil
}

// BenchmarkTransport measures a request that needs no hedge, over a transport that does nothing and
// over a connection.
func BenchmarkTransport(b *testing.B) {
	s := newServer(b, false, hello)
	nothing := &answering{http.Response{StatusCode: 200, Body: http.NoBody}}
	never := hedgetest.Fixed(b, time.Hour)
	off := hedgetest.All(b, hedge.WithMaxHedges(0))
	for _, bc := range []struct {
		name string
		rt   http.RoundTripper
	}{
		{"nothing/plain", nothing},
		{"nothing/hedged", hedgehttp.Transport(never, nothing)},
		{"nothing/watching", hedgehttp.Transport(off, nothing)},
		{"loopback/plain", s.base},
		{"loopback/hedged", hedgehttp.Transport(never, s.base)},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			req := s.request(b.Context(), "GET", "/", nil)
			for b.Loop() {
				res, err := bc.rt.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		})
	}
}
