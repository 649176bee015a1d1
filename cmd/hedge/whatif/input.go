package whatif

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/grpchedge/hedge/bench/figure"
	"github.com/grpchedge/hedge/bench/progress"
)

// InputError is a line that cannot be read.
type InputError struct {
	Name            string // of the file
	Line            int    // from 1; 0: the file as a whole
	Found, Expected string
}

func (e *InputError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: found %s, expected %s", e.Name, e.Found, e.Expected)
	}
	return fmt.Sprintf("%s:%d: found %s, expected %s", e.Name, e.Line, e.Found, e.Expected)
}

// input is a file under reading, and its calls.
type input struct {
	Question
	name string
	log  io.Writer

	lines  int64 // from which on progress is shown
	groups map[string]*calls
	notes  []string // remarks about the input, printed below the answer

	fewGroups int     // left out, as they have too few calls
	fewCalls  float64 // in them

	file     io.Reader
	size     int64 // of the file; 0: unknown
	bytes    int64 // read
	progress *progress.Progress
}

const (
	// longestLine bounds the memory that a line takes.
	longestLine = 1 << 20
	// showFrom is the number of lines from which on progress is shown: about a second's worth.
	showFrom = 1_000_000
	// maxGroups bounds the memory, and the tables that are printed.
	maxGroups = 1000
)

// read counts all calls of a file.
func (in *input) read(file io.Reader) error {
	in.file = file
	if f, ok := file.(interface{ Stat() (fs.FileInfo, error) }); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			in.size = info.Size()
		}
	}
	defer func() { in.progress.End() }()
	buffered := bufio.NewReaderSize(in, longestLine)
	first, err := firstLine(buffered)
	if err != nil {
		return err
	}
	if first == "" {
		return in.wrong(0, "nothing", aLatency)
	}
	switch cmp.Or(in.Format, in.formatOf(first)) {
	case Prometheus:
		return in.readHistogram(buffered)
	case CSV:
		return in.readCSV(buffered)
	}
	return in.readLines(buffered)
}

// firstLine returns the first line with anything on it, or the beginning of a long one, and leaves
// it to be read.
func firstLine(r *bufio.Reader) (string, error) {
	for n := 4096; ; n *= 2 {
		head, err := r.Peek(min(n, longestLine))
		text := bytes.TrimLeft(head, " \t\r\n\ufeff")
		line, _, whole := bytes.Cut(text, []byte("\n"))
		switch {
		case whole, errors.Is(err, io.EOF), n >= longestLine:
			return strings.TrimSpace(string(line)), nil
		case err != nil:
			return "", err
		}
	}
}

// Read reads from the file and notes how far it has come.
func (in *input) Read(p []byte) (int, error) {
	n, err := in.file.Read(p)
	in.bytes += int64(n)
	if in.size > 0 {
		in.progress.Add(int64(n))
	}
	return n, err
}

// aLine notes that a line was read. Progress counts bytes if the size of the file is known, and
// lines otherwise.
func (in *input) aLine() {
	in.lines++
	switch {
	case in.lines == showFrom && in.size > in.bytes:
		in.progress = progress.Start(in.log, "reading "+in.name, in.size-in.bytes)
	case in.lines == showFrom && in.size == 0:
		in.progress = progress.Start(in.log, "lines of "+in.name, 0)
		in.progress.Add(in.lines)
	case in.size == 0:
		in.progress.Add(1)
	}
}

// eachLine calls a function with each line that has anything on it, and its number.
func (in *input) eachLine(r io.Reader, read func(number int, line []byte) error) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 64<<10), longestLine)
	number := 0
	for scanner.Scan() {
		number++
		in.aLine()
		line := scanner.Bytes()
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := read(number, line); err != nil {
			return err
		}
	}
	if errors.Is(scanner.Err(), bufio.ErrTooLong) {
		return in.wrong(number+1, "more than 1 MiB", "a line of the file")
	}
	return scanner.Err()
}

// readLines reads a latency from each line.
func (in *input) readLines(r io.Reader) error {
	if in.By != "" || len(in.Where) > 0 {
		names := cmp.Or(in.By, in.Where.String())
		return in.wrong(1, "latencies alone",
			fmt.Sprintf("a file with %q; -by and -where need -field, unless the file is a Prometheus histogram", names))
	}
	all, err := in.group(1, "")
	if err != nil {
		return err
	}
	return in.eachLine(r, func(number int, line []byte) error {
		d, expected := in.Unit.latency(string(line))
		if expected != "" {
			if all.count == 0 && expected == aLatency {
				expected += "; of CSV, name the column with -field"
			}
			return in.wrong(number, quote(string(line)), expected)
		}
		all.add(d, 1)
		return nil
	})
}

// group returns the calls with a value in the column.
func (in *input) group(line int, value string) (*calls, error) {
	c := in.groups[value]
	if c == nil {
		if len(in.groups) == maxGroups {
			return nil, in.wrong(line, fmt.Sprintf("%s as one more value of %q", quote(value), in.By),
				fmt.Sprintf("at most %s, as of methods", figure.Count(maxGroups)))
		}
		c = &calls{value: strings.Clone(value)}
		in.groups[c.value] = c
	}
	return c, nil
}

func (in *input) wrong(line int, found, expected string) error {
	return &InputError{in.name, line, found, expected}
}

// quote quotes a text, cut to its beginning if long.
func quote(s string) string {
	const most = 60
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most]) + "…"
	}
	if strings.Contains(s, `"`) {
		return fmt.Sprintf("%#q", s)
	}
	return fmt.Sprintf("%q", s)
}
