package whatif_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge/cmd/hedge/whatif"
	"github.com/grpchedge/hedge/internal/longtest"
)

// TestProgress checks that progress is shown once more than a million lines have been read, and not
// of fewer.
func TestProgress(t *testing.T) {
	longtest.Computation(t)
	for _, tc := range []struct {
		lines int
		piped bool
		want  string
	}{
		{900_000, false, ""},
		{900_000, true, ""},
		{1_500_000, false, "reading calls.txt: 58%, 7s left\n"},
		{1_500_000, true, "lines of calls.txt: 1,310,720 so far\nlines of calls.txt: 1,500,000 so far\n"},
	} {
		path := filepath.Join(t.TempDir(), "calls.txt")
		if err := os.WriteFile(path, []byte(strings.Repeat("5ms\n", tc.lines)), 0o600); err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			var log strings.Builder
			var input io.Reader = slow{file}
			if tc.piped {
				input = struct{ io.Reader }{input} // nothing that tells its size
			}
			if err := (whatif.Question{}).Answer("calls.txt", input, io.Discard, &log); err != nil {
				t.Fatal(err)
			}
			if log.String() != tc.want {
				t.Errorf("%d lines, piped %v: progress is %q, want %q", tc.lines, tc.piped, &log, tc.want)
			}
		})
	}
}

// slow is a file: each read takes nine seconds of virtual time.
type slow struct{ *os.File }

func (s slow) Read(p []byte) (int, error) {
	time.Sleep(9 * time.Second)
	return s.File.Read(p)
}
