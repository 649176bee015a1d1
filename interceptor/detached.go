package interceptor

// detach gives the primary its own copy of the request and its own reply, so that it may run on when it has lost. It returns
// false, and changes nothing, if the request cannot be copied.
func (u *unary) detach() bool {
	if u.request.Shared() || !u.request.Replayable() {
		return false
	}
	req, ok := u.request.Repeat()
	if ok {
		u.req, u.reply = req, u.replies.Make()
	}
	return ok
}
