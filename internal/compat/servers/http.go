package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/grpchedge/hedge/hedgehttp"
	"github.com/grpchedge/hedge/internal/testserver"
)

// RunHTTP is Run for an HTTP server: GET requests of HTTP/2 in plain text to the first address.
func (l Load) RunHTTP(ctx context.Context, addresses []string, dial dialer, budget float64) (*Result, error) {
	s, err := l.scheduler(budget)
	if err != nil {
		return nil, err
	}
	meter := testserver.NewMeter(dial)
	base := h2c(meter.Dial)
	defer base.CloseIdleConnections()
	rt := http.RoundTripper(base)
	if s != nil {
		rt = hedgehttp.Transport(s, base)
	}
	url := "http://" + addresses[0] + "/"
	if err := l.get(ctx, base, url, 0); err != nil { // connect
		return nil, err
	}
	result := l.calls(ctx, func(ctx context.Context, id uint64) (time.Duration, error) {
		if l.Deadline > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, l.Deadline)
			defer cancel()
		}
		start := time.Now()
		err := l.get(ctx, rt, url, id)
		return time.Since(start), err
	})
	result.Wire = meter.Counts()
	if s != nil {
		if targets := s.Methods(); len(targets) > 0 {
			result.Target = targets[0]
		}
	}
	return result, nil
}

// get sends a request. The reply must have its id.
func (l Load) get(ctx context.Context, rt http.RoundTripper, url string, id uint64) error {
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return err
	}
	if l.Bytes > 0 {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(make([]byte, l.Bytes))), int64(l.Bytes)
	}
	want := strconv.FormatUint(id, 10)
	req.Header.Set("Id", want)
	res, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	switch got := res.Header.Get("Id"); {
	case res.StatusCode != http.StatusOK:
		return errors.New(res.Status)
	case got != want:
		return fmt.Errorf("%w: its id is %q", errWrong, got)
	}
	return nil
}

// h2c returns a transport of HTTP/2 in plain text.
func h2c(dial dialer) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: protocols,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) }}
}

// answersHTTP is answers for an HTTP server.
func (r *Running) answersHTTP(ctx context.Context, ended chan error) error {
	base := h2c(tcp)
	defer base.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := Load{}.get(ctx, base, "http://"+r.Address+"/", 7)
		if err == nil {
			return nil
		}
		select {
		case exit := <-ended:
			ended <- exit // for stop
			return fmt.Errorf("it has ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
