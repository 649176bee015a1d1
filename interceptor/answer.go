package interceptor

// Accepts implements [race.Judge] for the primary.
func (u *unary) Accepts(err error) (ok, open bool) { return u.accepts(0, u.reply, err), false }

// Accepts implements [race.Judge].
func (h *unaryHedge) Accepts(err error) (ok, open bool) { return h.accepts(h.n, h.reply, err), false }

// accepts reports whether the end of attempt n is an answer.
func (u *unary) accepts(n int, reply any, err error) bool {
	if err != nil {
		reply = nil
	}
	return u.call.Accepts(n, reply, err)
}
