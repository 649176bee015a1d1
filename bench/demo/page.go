package demo

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/debug"
)

// page serves the debug page of the scheduler that is at work.
type page struct {
	handler atomic.Pointer[http.Handler] // nil before the first scheduler
	server  *http.Server
}

// servePage serves the page at an address, which it writes to w. With the address "" it serves
// none, and returns nil.
func servePage(ctx context.Context, address string, w io.Writer) (*page, error) {
	if address == "" {
		return nil, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("-debug %s: %w", address, err)
	}
	p := &page{}
	p.server = &http.Server{Handler: p}
	go func() { _ = p.server.Serve(listener) }()
	fmt.Fprintf(w, "While this runs, http://%s shows what is hedged and why.\n\n", listener.Addr())
	return p, nil
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := p.handler.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	debug.Handler(nil).ServeHTTP(w, r)
}

// show has the page show a scheduler.
func (p *page) show(s *hedge.Scheduler) {
	if p != nil {
		h := debug.Handler(s)
		p.handler.Store(&h)
	}
}

func (p *page) close() {
	if p != nil {
		_ = p.server.Close()
	}
}
