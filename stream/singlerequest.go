package stream

import "github.com/grpchedge/hedge/internal/rpc"

// singleRequest is the state of a stream of a bidirectional method: its messages and hedges.
type singleRequest struct {
	hedges []*streamAttempt // that have sent the request, until the caller closes its side
	closed bool             // no more messages follow
	second bool             // the caller sends a second message: no hedge without an answer may win
}

// sent notes that a hedge has sent the request, and closes its side if the caller has. It returns
// an error if the hedge must not win.
func (c *clientStream) sent(h *streamAttempt) error {
	if c.single == nil {
		return h.CloseSend()
	}
	c.Lock()
	closed, second := c.single.closed, c.single.second
	if !closed {
		c.single.hedges = append(c.single.hedges, h)
	}
	c.Unlock()
	switch {
	case second:
		return rpc.ErrLost
	case closed:
		return h.CloseSend()
	}
	return nil
}

// answered notes that a hedge has an answer. Like sent, it returns an error if the hedge must not
// win.
func (c *clientStream) answered(h *streamAttempt) error {
	if c.single == nil {
		return nil
	}
	c.Lock()
	defer c.Unlock()
	if c.single.second {
		return rpc.ErrLost
	}
	h.answered = true
	return nil
}

// dropHedges cancels the hedges without an answer if the caller sends a second message and the
// primary cannot win.
func (c *clientStream) dropHedges() {
	if c.single == nil {
		return
	}
	c.Lock()
	var losers []*streamAttempt
	for _, h := range c.single.hedges { // a closed side sends no second message
		if c.single.second && !h.answered {
			losers = append(losers, h)
		}
	}
	c.Unlock()
	for _, h := range losers {
		h.cancel(rpc.ErrLost)
	}
}
