package interceptor

// Accepts implements [race.Judge] for the primary.
func (u *unary) Accepts(err error) (ok, open bool) { return u.call.Accepts(0, u.reply, err), false }

// Accepts implements [race.Judge].
func (h *unaryHedge) Accepts(err error) (ok, open bool) {
	return h.call.Accepts(h.n, h.reply, err), false
}
