package main

import (
	"bytes"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/grpchedge/hedge/internal/longtest"
)

// whatIf runs the program with an input, and returns its exit code and output.
func whatIf(t *testing.T, input string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), append([]string{"whatif"}, args...), strings.NewReader(input), &out, &err)
	return code, out.String(), err.String()
}

func TestInput_Wrong(t *testing.T) {
	const (
		latency = "a latency with a unit, such as 12.5ms"
		unit    = latency + "; for numbers alone, give their unit with -unit"
		line    = `a line such as rpc_seconds_bucket{le="0.1"} 42`
	)
	for _, tc := range []struct{ args, input, want string }{
		{"", "", "stdin: found nothing, expected " + latency},
		{"", "5ms\n", "stdin: found 1 call, expected at least 200, which a prediction is made from"},
		{"", "12.5\n", `stdin:1: found "12.5", expected ` + unit},
		{"", "5ms\n7 parsecs\n", `stdin:2: found "7 parsecs", expected ` + latency},
		{"", "5ms\n-5ms\n", `stdin:2: found "-5ms", expected a latency of 0 or more`},
		{"-unit ms", "5\n-5\n", `stdin:2: found "-5", expected a latency of 0 or more`},
		{"-unit s", "1e300\n", `stdin:1: found "1e300", expected a latency of less than 292 years`},
		{"", "5ms\n" + strings.Repeat("x", 70) + "\n", `stdin:2: found "` + strings.Repeat("x", 60) +
			`…", expected ` + latency},
		{"", "5ms\n" + strings.Repeat("x", 2<<20), "stdin:2: found more than 1 MiB, expected a line of the file"},
		{"-by method", "5ms\n",
			`stdin:1: found latencies alone, expected a file with "method"; -by and -where need -field, unless ` +
				`the file is a Prometheus histogram`},
		{"", "method,took\n", `stdin:1: found "method,took", expected ` + latency +
			"; of CSV, name the column with -field"},
		{"-field time", "method,took\n", `stdin:1: found "method,took", expected a header with one column "time"`},
		{"-field took", "took, took\n", `stdin:1: found "took,took", expected a header with one column "took"`},
		{"-field took", "method,took\nGet,5ms\nGet,soon\n", `stdin:3: found "soon" in "took", expected ` + latency},
		{"-field took", "method,took\n\"Get\n\",5\n", `stdin:3: found "5" in "took", expected ` + unit},
		{"-field took", "method,took\nGet\n", "stdin:2: found another number of columns, expected as many as in the header"},
		{"-field took", "method,took\nGet,\"5ms\n",
			`stdin:2: found extraneous or missing " in quoted-field, expected CSV, with quotes doubled inside quotes`},
		{"-field took", "method,took\nGet,5ms\nPut,\"5ms\n" + strings.Repeat("Get,5ms\n", 1<<19),
			"stdin:3: found more than 1 MiB, expected a record, with quotes doubled inside quotes"},
		{"-field took -where status=OK", "status,took\nNo,5ms\n",
			"stdin: found 0 calls, expected at least 200, which a prediction is made from"},
		{"-field took -by method", "method,took\nGet,5ms\n",
			"stdin: found 1 call of one method, expected at least 200, which a prediction is made from"},
		{"-field took -by id", "id,took\n" + numbered("%d,5ms\n", 1001),
			`stdin:1002: found "1001" as one more value of "id", expected at most 1,000, as of methods`},
		{"-format csv", "method,took\n",
			"stdin:1: found CSV, expected the name of the column with the latencies, given with -field"},

		{"-where verb=Get", "rpc_bucket{le=\"1\"} 3\n",
			"stdin:1: found `rpc_bucket{le=\"1\"} 3`, expected the label \"verb\""},
		{"", "rpc_bucket{le=\"1\"} 3\nrpc_bucket{le=\"+Inf\"} 3\n",
			"stdin: found the histogram rpc, whose name has no unit, expected one such as rpc_seconds, or the " +
				"unit of its edges, given with -unit"},
		{"", "# TYPE rpc histogram\n", `stdin: found no histogram, expected lines of NAME_bucket{le="…"}`},
		{"-unit s", "# TYPE rpc histogram\nrpc_bucket{le=\"+Inf\"} 3\nrpc_sum 1\nrpc_count 3\n",
			`stdin:2: found le="+Inf" as the only bucket of a series, as of a native histogram, expected the buckets ` +
				`of a classic histogram`},
		{"", "{\"rpc_bucket\"} 3\n",
			`stdin:1: found le="", expected the upper edge of a bucket, such as le="0.1" or le="+Inf"`},
		{"", "rpc_bucket{le=\"1} 3\n", "stdin:1: found `rpc_bucket{le=\"1} 3`, expected " + line},
		{"", "rpc_bucket{le=\"1\"} many\n", "stdin:1: found `rpc_bucket{le=\"1\"} many`, expected " + line},
		{"", "rpc_bucket{le=\"low\"} 3\n",
			`stdin:1: found le="low", expected the upper edge of a bucket, such as le="0.1" or le="+Inf"`},
		{"", "rpc_bucket{le=\"1\"} -3\n", "stdin:1: found -3 calls, expected a number from 0 to 1e+15"},
		{"", "rpc_bucket{le=\"1\"} 1e300\n", "stdin:1: found 1e+300 calls, expected a number from 0 to 1e+15"},
		{"", "rpc_bucket{le=\"1\"} 3\nrpc_bucket{le=\"1\"} 4\n",
			`stdin:2: found le="1" of the same series again, expected one scrape`},
		{"-unit s", "rpc_bucket{le=\"1\"} 3\nrpc_bucket{le=\"+Inf\"} 2\n",
			"stdin:2: found 2 calls up to +Inf, expected at least the 3 of the bucket before: counts of a " +
				"histogram add up"},
		{"-unit s", "rpc_bucket{le=\"1\"} 3\n",
			`stdin:1: found le="1" as the last bucket of a series, expected others before it, and le="+Inf" last`},
		{"", "rpc_bucket{le=\"1\"} 3\ncall_bucket{le=\"1\"} 3\n",
			"stdin:2: found the histogram call after rpc, expected one histogram; choose it with -field"},
	} {
		code, stdout, stderr := whatIf(t, tc.input, strings.Fields(tc.args)...)
		if want := "hedge: " + tc.want + "\n"; code != 2 || stderr != want || stdout != "" {
			t.Errorf("%s < %.40q: exit code %d\n%swant\n%s%s", tc.args, tc.input, code, stderr, want, stdout)
		}
	}
}

// numbered repeats a format with the numbers from 1 on.
func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i+1)
	}
	return b.String()
}

func TestFormats(t *testing.T) {
	const calls = 300
	lines := numbered("%dms\n", calls)
	_, want, stderr := whatIf(t, lines)
	if !strings.HasPrefix(want, "stdin: 300 calls without hedging\n") {
		t.Fatalf("the table of single calls is\n%s%s", want, stderr)
	}
	path := filepath.Join(t.TempDir(), "lines.txt")
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, args, input string }{
		{"a file", path, ""},
		{"a unit behind a space", "", numbered("%d ms\n", calls)},
		{"microseconds", "", numbered("%d000µs\n", calls)},
		{"empty lines, CRLF and a byte order mark", "", "\ufeff\r\n" + numbered("%dms\r\n\r\n", calls)},
		{"no newline at the end", "", strings.TrimSpace(lines)},
		{"CSV", "-field took", "method,took\n" + numbered("Get,%dms\n", calls)},
		{"CSV with quotes, spaces and a byte order mark", "-field took -unit ms", "\ufefftook, method\n" +
			numbered("\"%d\",\"a,\nb\"\n", calls)},
		{"CSV with spaces in its header", "-field took -unit ms", "start time,took\n" + numbered("12:00:00,%d\n", calls)},
		{"CSV with braces in its header", "-field took", "call {id} ,took\n" + numbered("1,%dms\n", calls)},
		{"CSV with spaces around its fields", "-field took -where status=OK",
			"status , took\n" + numbered(" OK , %dms \n", calls) + "FAILED, soon\n"},
		{"CSV by flag", "-format csv -field took", "# HELP x,took\n" + numbered("1,%dms\n", calls)},
		{"lines by flag", "-format lines", numbered("%dms\n", calls)},
	} {
		code, got, stderr := whatIf(t, tc.input, strings.Fields(tc.args)...)
		if got = strings.ReplaceAll(got, path, "stdin"); code != 0 || got != want {
			t.Errorf("%s: exit code %d\n%s%swant\n%s", tc.name, code, stderr, got, want)
		}
	}
}

// TestBy checks that each value of a column has a table, the one with the most calls first, and
// that small ones are left out.
func TestBy(t *testing.T) {
	csv := "method,took\n" + numbered("Get,%dms\n", 300) + numbered("Put,%ds\n", 200) + "Delete,1ms\n" +
		numbered("List,%dms\n", 400)
	code, got, stderr := whatIf(t, csv, "-field", "took", "-by", "method")
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	for _, text := range []string{
		`method "List": 400 calls`, `method "Get": 300 calls`, "150.3 ms", `method "Put": 200 calls`,
		`Left out, as a prediction needs 200 calls: 1 other value of "method", with 1 call in all.`,
		`far off: method "List", method "Get", method "Put".`, "Each table is of one method",
	} {
		_, after, ok := strings.Cut(got, text)
		if !ok {
			t.Fatalf("%q is missing, or not after the others\n%s", text, got)
		}
		got = after
	}
}

// TestHistogram checks that a histogram with narrow buckets gives the same table as its calls.
func TestHistogram(t *testing.T) {
	var text strings.Builder
	text.WriteString("# HELP rpc_seconds What calls took.\n# TYPE rpc_seconds histogram\n")
	for le := 1; le <= 500; le++ {
		fmt.Fprintf(&text, "rpc_seconds_bucket{method=\"a \\\"}\",le=\"%g\"} %g 1700000000 # {id=\"x\"} 0.1\n",
			float64(le)/1000, min(float64(le)*100, 40_000))
		fmt.Fprintf(&text, "rpc_seconds_bucket{le=\"%g\",method=\"b\",} %d\n", float64(le)/1000, min(max(le-300, 0)*10, 1000))
	}
	text.WriteString("rpc_seconds_bucket{method=\"a \\\"}\",le=\"+Inf\"} " +
		"40000\nrpc_seconds_bucket{method=\"b\",le=\"+Inf\"} 1250\nrpc_seconds_count 1\nother 2\n")
	code, got, stderr := whatIf(t, text.String(), "-by", "method")
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	for _, want := range []string{
		"method `a \"}`: 40,000 calls", "method \"b\": 1,250 calls",
		"0.6% of the calls took longer than the last bucket, and count as 500.0 ms. Percentiles beyond it are too small.\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	for p, want := range map[string]string{"p50": "200.", "p99": "396.", "p99.9": "40"} {
		if none := strings.SplitN(got, "\n", 5)[3]; !strings.Contains(none, want) {
			t.Errorf("%s is not about %s0 ms in %q", p, want, none)
		}
	}
}

// TestHistogram_LargeFiles checks that files with more buckets than are kept in memory give the
// same table as small ones, in any order of their lines and with any memory.
func TestHistogram_LargeFiles(t *testing.T) {
	edges := []string{"0.1", "0.2", "0.4", "0.8", "+Inf"}
	line := func(pod, edge int, le string) string {
		return fmt.Sprintf("rpc_seconds_bucket{method=\"%s\",pod=\"%d\",le=\"%s\"} %d\n",
			[]string{"Get", "Put"}[pod%2], pod, le, min(5*(edge+1), 20))
	}
	together := func(pods int) string {
		var b strings.Builder
		for pod := range pods {
			for edge, le := range edges {
				b.WriteString(line(pod, edge, le))
			}
		}
		return b.String()
	}
	apart := func(pods int) string {
		var b strings.Builder
		for _, edge := range []int{4, 1, 0, 3, 2} {
			for pod := range pods {
				b.WriteString(line(pod, edge, edges[edge]))
			}
		}
		return b.String()
	}
	other := strings.ReplaceAll(strings.ReplaceAll(apart(10_000), `le="0.4"`, `le="0.5"`), `pod="`, `pod="x`)
	_, want, _ := whatIf(t, together(2_000), "-by", "method")
	want = strings.ReplaceAll(want, "20,000 calls", "100,000 calls")
	for _, tc := range []struct{ name, input, want, err string }{
		{name: "series together", input: together(10_000), want: want},
		{name: "series apart", input: apart(10_000), want: want},
		{name: "series with other buckets, together", input: together(9_000) +
			strings.ReplaceAll(together(10_000)[len(together(9_000)):], `le="0.4"`, `le="0.5"`)},
		{name: "series with other buckets, apart", input: apart(10_000) + other,
			err: `stdin:40001: found le="0.4" in 5000 of 10000 series, and lines of a series apart from each other, ` +
				`expected the same buckets in all series, or each series on consecutive lines`},
		{name: "two scrapes together", input: together(10_000) + together(10_000),
			err: `stdin:50001: found le="0.1" of the same series again, expected one scrape`},
		{name: "two scrapes apart", input: apart(10_000) + apart(10_000),
			err: `stdin:50001: found le="+Inf" of the same series again, expected one scrape`},
	} {
		code, got, stderr := whatIf(t, tc.input, "-by", "method")
		if tc.err != "" {
			if code != 2 || stderr != "hedge: "+tc.err+"\n" {
				t.Errorf("%s: exit code %d, %s\nwant %s", tc.name, code, stderr, tc.err)
			}
		} else if code != 0 || tc.want != "" && got != tc.want || !strings.Contains(got, `method "Put": 100,000 calls`) {
			t.Errorf("%s: exit code %d\n%s%s\nwant\n%s", tc.name, code, stderr, got, tc.want)
		}
	}
}

func TestHistogram_NamesInQuotes(t *testing.T) {
	edges := func(sample string) string {
		return fmt.Sprintf(sample, "0.1", 100) + fmt.Sprintf(sample, "1200", 300) + fmt.Sprintf(sample, "+Inf", 400)
	}
	_, want, stderr := whatIf(t, edges("rpc_seconds_bucket{method=\"Get\",le=%q} %d\n"))
	for _, note := range []string{"took longer than the last bucket, and count as 600000.0 ms.",
		"calls of more than 10m0s count as 10m0s."} {
		if !strings.Contains(want, note) {
			t.Errorf("%q is not in\n%s%s", note, want, stderr)
		}
	}
	for args, text := range map[string]string{
		"":                   `{"rpc.seconds_bucket",method="Get",le=%q} %d` + "\n",
		"-where my.method=G": `{"rpc.seconds_bucket", "my.method"="G", "le"=%q} %d` + "\n",
		"-field rpc.seconds": `{"rpc.seconds_bucket",method="},\"",le=%q} %d` + "\n",
		"-field rpc_seconds": `{__name__="rpc_seconds_bucket",le=%q} %d` + "\n",
	} {
		for _, head := range []string{"", "# TYPE \"rpc.seconds\" histogram\n", "# UNIT \"rpc.seconds\" seconds\n"} {
			if code, got, stderr := whatIf(t, head+edges(text), strings.Fields(args)...); code != 0 || got != want {
				t.Errorf("%s%s: exit code %d, want\n%s, got\n%s%s", head, text, code, want, got, stderr)
			}
		}
	}
}

// TestUnitOfAHistogram: the unit of the edges is said by -unit, by # UNIT, or by the histogram's
// name.
func TestUnitOfAHistogram(t *testing.T) {
	for _, tc := range []struct{ name, unit, args, want string }{
		{name: "rpc_seconds", want: "2500.0 ms"},
		{name: "rpc_ms", want: "2.50 ms"},
		{name: "rpc_nanoseconds", want: "0.001 ms"}, // the least that is counted,
		{name: "rpc", unit: "milliseconds", want: "2.50 ms"},
		{name: "rpc", unit: "seconds", args: "-unit ms", want: "2.50 ms"},
	} {
		input := fmt.Sprintf(
			"# HELP %[1]s x\n# UNIT %[1]s %[2]s\n%[1]s_bucket{le=\"5\"} 300\n%[1]s_bucket{le=\"10\"} "+
				"300\n%[1]s_bucket{le=\"+Inf\"} 300\n", tc.name, tc.unit)
		if tc.unit == "" {
			input = strings.Replace(input, "# UNIT", "# TYPE", 1)
		}
		code, got, stderr := whatIf(t, input, strings.Fields(tc.args)...)
		if p50 := strings.SplitN(got, "\n", 5); code != 0 || len(p50) < 4 || !strings.Contains(p50[3], tc.want) {
			t.Errorf("%s, unit %q, %s: exit code %d, want a p50 of %s\n%s%s", tc.name, tc.unit, tc.args, code,
				tc.want, got, stderr)
		}
	}
}

func TestWhere(t *testing.T) {
	const le = `rpc_seconds_bucket{status="%s",method="%s",le="%s"} %d` + "\n"
	var histogram strings.Builder
	for _, of := range []struct{ status, method string }{{"OK", "Get"}, {"OK", "Put"}, {"FAILED", "Get"}} {
		fmt.Fprintf(&histogram, le+le, of.status, of.method, "0.1", 300, of.status, of.method, "+Inf", 300)
	}
	csv := "status,method,took\n" + numbered("OK,Get,%dms\n", 300) + numbered("OK,Put,%dms\n", 300) +
		strings.Repeat("FAILED,Get,soon\n", 300)
	for _, tc := range []struct{ name, args, input string }{
		{"CSV", "-field took", csv}, {"histogram", "", histogram.String()},
	} {
		for args, want := range map[string]string{"-where status=OK": "stdin: 600 calls",
			"-where status=OK -where method=Get": "stdin: 300 calls"} {
			if code, got, stderr := whatIf(t, tc.input, strings.Fields(tc.args+" "+args)...); code != 0 ||
				!strings.HasPrefix(got, want) {
				t.Errorf("%s, %s: exit code %d, want %s\n%s%s", tc.name, args, code, want, got, stderr)
			}
		}
	}
}

// full is a disk on which there is no room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestAnswer_CannotBeWritten(t *testing.T) {
	for _, args := range []string{"whatif", "-h"} {
		var err bytes.Buffer
		code := run(t.Context(), []string{args}, strings.NewReader(numbered("%dms\n", 300)), full{}, &err)
		if want := "hedge: writing the answer: no space left on device\n"; code != 1 || err.String() != want {
			t.Errorf("%s: exit code %d, %q, want 1 and %q", args, code, &err, want)
		}
	}
}

func TestPicture(t *testing.T) {
	longtest.Computation(t)
	path := filepath.Join(t.TempDir(), "picture.png")
	csv := "method,took\n" + numbered("Get,%dms\n", 300) + numbered("Put,%ds\n", 300)
	code, got, stderr := whatIf(t, csv, "-field", "took", "-by", "method", "-o", path)
	if code != 0 || !strings.HasSuffix(got, "\nThe picture is "+path+".\n") {
		t.Fatalf("exit code %d\n%s%s", code, stderr, got)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if picture, err := png.DecodeConfig(file); err != nil || picture.Width < 1000 || picture.Height < 1200 {
		t.Errorf("the picture is %+v, %v", picture, err)
	}
}
