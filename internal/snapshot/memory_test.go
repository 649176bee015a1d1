package snapshot_test

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/snapshot"
)

func frame(number protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), slices.Concat(parts...))
}

// hostile is a snapshot that is to take as much memory for its size as can be, and how many targets, methods and classes it has.
type hostile struct {
	bytes []byte
	parts int
}

// hostileOnes are snapshots of about so many bytes.
func hostileOnes(size int) map[string]hostile {
	many := func(part func(n int) []byte) []byte {
		var b []byte
		for n := 0; len(b) < size; n++ {
			b = append(b, part(n)...)
		}
		return b
	}
	some := func(perPart, most int, part func(n int) []byte) (b []byte, n int) {
		for ; n < min(size/perPart, most); n++ {
			b = append(b, part(n)...)
		}
		return b, n
	}
	empties := bytes.Repeat([]byte{0x1a, 0}, size/2) // field 3, without anything in it
	x := frame(1, []byte("x"))
	name := func(n int) []byte { return frame(1, fmt.Appendf(nil, "%x", n)) }
	zero := protowire.AppendFixed64(protowire.AppendTag(nil, 4, protowire.Fixed64Type), math.Float64bits(1)) // a sketch of one call
	known := frame(2, frame(1, zero))
	version := []byte{8, 1, 15 << 3, 1}
	of := func(parts int, b ...[]byte) hostile {
		return hostile{slices.Concat(append([][]byte{version}, b...)...), parts}
	}

	targets, n := some(24, 1<<18, func(n int) []byte { return frame(2, name(n), frame(2, x, known)) })
	all := map[string]hostile{"targets of a method": {slices.Concat([]byte{8, 1, 15 << 3}, protowire.AppendVarint(nil, uint64(n)), targets), 2 * n}}
	methods, n := some(20, 1<<18, func(n int) []byte { return frame(2, name(n), known) })
	all["methods of a call"] = of(n+1, frame(2, x, methods))
	classes, n := some(20, 1<<18-1, func(n int) []byte { return frame(3, name(n), known) })
	all["classes of a call"] = of(n+2, frame(2, x, frame(2, x, classes)))
	outcome := func(n int) []byte {
		return frame(3, protowire.AppendVarint([]byte{8}, 1<<(n%40)), []byte{16, byte(n / 40 % 4)}, frame(3, zero))
	}
	outcomes, _ := some(20, 48, outcome)
	n = size / len(outcomes)
	all["methods of 48 outcomes"] = of(n+1, frame(2, x, many(func(n int) []byte { return frame(2, name(n), frame(2, frame(1, zero), outcomes)) })))

	all["empty targets"] = of(0, bytes.Repeat([]byte{0x12, 0}, size/2))
	all["named targets"] = of(0, bytes.Repeat(frame(2, x), size/5))
	all["named methods"] = of(0, frame(2, x, bytes.Repeat(frame(2, x), size/5)))
	all["empty classes"] = of(0, frame(2, x, frame(2, x, empties)))
	all["empty outcomes"] = of(0, frame(2, x, frame(2, x, frame(2, empties))))
	all["a sketch"] = of(0, frame(2, x, frame(2, x, frame(2, frame(1, empties)))))
	all["bins in a sketch"] = of(0, frame(2, x, frame(2, x, frame(2, frame(1, frame(2, bytes.Repeat([]byte{0x0a, 0}, 60_000)))))))
	return all
}

// TestRead_TakesMemoryByItsSize reads snapshots that take much more as objects than as bytes. What is kept of them is, with
// the bytes themselves, at most what docs/snapshot.md says. Of those that are refused nothing is kept, so all that was allocated
// is bounded: the buffer that grows, which is about five times the bytes altogether, and little else.
func TestRead_TakesMemoryByItsSize(t *testing.T) {
	for name, h := range hostileOnes(longtest.Size(1<<20, 8<<20)) {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			s, err := snapshot.Read(bytes.NewReader(h.bytes))
			runtime.GC()
			runtime.ReadMemStats(&after)
			kept := int64(after.HeapAlloc) - int64(before.HeapAlloc)
			t.Logf("%d bytes, %d parts, %d kept: %.1f times the bytes; %v", len(h.bytes), h.parts, kept,
				float64(kept)/float64(len(h.bytes)), err)
			if allocated, allowed := after.TotalAlloc-before.TotalAlloc, uint64(16*len(h.bytes)+2<<20); err != nil && allocated > allowed {
				t.Errorf("%d bytes are allocated to refuse %d, want at most %d", allocated, len(h.bytes), allowed)
			}
			if takes, allowed := kept+int64(len(h.bytes)), int64(5*len(h.bytes)+256*h.parts+64<<10); takes > allowed {
				t.Errorf("reading %d bytes takes %d, want at most %d", len(h.bytes), takes, allowed)
			}
			runtime.KeepAlive(s)
			runtime.KeepAlive(h.bytes)
		})
	}
}
