package hedgehttp_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestTransport_Upgrade: a connection that changes its protocol is one attempt's, and can be
// written to.
func TestTransport_Upgrade(t *testing.T) {
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		rw.Flush()
		line, _ := rw.ReadString('\n')
		fmt.Fprint(rw, line)
		rw.Flush()
	})
	scheduler := hedgetest.Fixed(t, time.Nanosecond, hedge.WithMinDelay(0))
	req := s.request(t.Context(), "GET", "/", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	all := hedgehttp.WithFirstByte(func(*http.Response) bool { return true })
	res, err := hedgehttp.Transport(scheduler, s.base, all).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	fmt.Fprintln(res.Body.(io.Writer), "echoed")
	line, err := bufio.NewReader(res.Body).ReadString('\n')
	if c := scheduler.Stats(); line != "echoed\n" || err != nil || c.Hedges != 0 || c.NotReplayable != 1 {
		t.Errorf("%q, %v, %+v", line, err, c)
	}
}

// TestTransport_HooksSeeThePrimary: hooks of net/http, and of the dialer below it, are called for
// the primary alone. So are those for 1xx responses.
func TestTransport_HooksSeeThePrimary(t *testing.T) {
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		hello(w, r)
	})
	s.hangs.Store(true)
	var get, dial, early atomic.Int64
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GetConn:        func(string) { get.Add(1) },
		ConnectStart:   func(string, string) { dial.Add(1) },
		Got1xxResponse: func(int, textproto.MIMEHeader) error { early.Add(1); return nil },
	})
	another := s.base.Clone()
	defer another.CloseIdleConnections()
	scheduler := hedgetest.Fixed(t, 100*time.Millisecond)
	rt := hedgehttp.Transport(scheduler, s.base, hedgehttp.WithHedgeTransport(another))
	got := read(rt.RoundTrip(s.request(ctx, "GET", "/", nil)))
	if hedged := scheduler.Stats().HedgeWins; get.Load() != 1 || dial.Load() != 1 || early.Load() != 0 || hedged != 1 {
		t.Errorf("%s: %d connections asked for, %d dialed, %d early hints, %d hedges won", got, get.Load(),
			dial.Load(), early.Load(), hedged)
	}
}
