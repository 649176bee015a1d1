package testserver

// frameHead is the length of a frame's head: the payload's length, the type, the flags and the
// stream.
const frameHead = 9

// payloadLength reads the length of a frame's payload from its head.
func payloadLength(head []byte) int { return int(head[0])<<16 | int(head[1])<<8 | int(head[2]) }

// frames knows where the HTTP/2 frames of one direction begin and end, as their bytes pass.
type frames struct {
	head [frameHead]byte // of the frame under way, or of the last one
	have int             // bytes of it that have passed; 0 between two frames
	left int             // bytes of the payload that are still to come
}

// between reports whether no frame has passed in part.
func (f *frames) between() bool { return f.have == 0 }

// next passes bytes up to the end of the frame under way, or all of them, and returns how many.
func (f *frames) next(p []byte) int {
	n := 0
	if f.have < frameHead {
		n = copy(f.head[f.have:], p)
		if f.have += n; f.have < frameHead {
			return n
		}
		f.left = payloadLength(f.head[:])
	}
	m := min(f.left, len(p)-n)
	if f.left -= m; f.left == 0 {
		f.have = 0
	}
	return n + m
}
