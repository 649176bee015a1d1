package hedgehttp

import "github.com/grpchedge/hedge/internal/call"

// Replayable makes the next hedge by the function of WithHedgeRequest, if there is one. A hedge that
// is held back is made once.
func (x *exchange) Replayable() bool {
	if x.hedgeRequest == nil || x.next != nil {
		return true
	}
	h := x.newHedge()
	x.next = h // also if the function panics
	x.setBody(h.req)
	own := h.req
	req, err := x.hedgeRequest(len(x.hedges)+1, own)
	h.made = true
	if req != nil {
		h.req = req.Clone(own.Context()) // the function may return the same request for several hedges
	}
	if err != nil || req == nil || req.URL == nil || req.Header == nil {
		h.drop()
		x.next = nil
		return false
	}
	return true
}

// destination is the target of hedge n, which is the next one.
func (x *exchange) destination(int) call.Destination {
	return call.Destination{Target: x.targetOf(x.next.req.URL)}
}

// unsend closes the body of a request of WithHedgeRequest that is not sent.
func (a *attempt) unsend() {
	if a.made && !a.started.Swap(true) && a.req.Body != nil {
		a.req.Body.Close()
	}
}
