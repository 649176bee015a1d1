package whatif

import (
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
)

// readCSV reads a latency from one column of each record. The first record names the columns.
func (in *input) readCSV(r io.Reader) error {
	file := &bounded{r, longestLine}
	records := csv.NewReader(file)
	records.ReuseRecord = true
	records.TrimLeadingSpace = true // spaces around a field do not count, here and below
	if in.Field == "" {
		return in.wrong(1, "CSV", "the name of the column with the latencies, given with -field")
	}
	header, err := records.Read()
	if err != nil {
		return in.badRecord(err, 1)
	}
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
	for i, name := range header {
		header[i] = strings.TrimSpace(name)
	}
	names := []string{in.Field}
	if in.By != "" {
		names = append(names, in.By)
	}
	for _, c := range in.Where {
		names = append(names, c.name)
	}
	columns := map[string]int{}
	for _, name := range names {
		columns[name] = slices.Index(header, name)
		if i := columns[name]; i < 0 || slices.Contains(header[i+1:], name) {
			line, _ := records.FieldPos(0)
			return in.wrong(line, quote(strings.Join(header, ",")), "a header with one column "+strconv.Quote(name))
		}
	}
	for record := header; ; {
		last, _ := records.FieldPos(len(record) - 1)
		last += strings.Count(record[len(record)-1], "\n")
		file.left = longestLine
		record, err = records.Read()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return in.badRecord(err, last+1)
		}
		in.aLine()
		get := func(name string) (string, bool) { i, ok := columns[name]; return strings.TrimSpace(record[i]), ok }
		if ok, _ := in.Where.passes(get); !ok {
			continue
		}
		value := ""
		if in.By != "" {
			value, _ = get(in.By)
		}
		took, _ := get(in.Field)
		line, _ := records.FieldPos(columns[in.Field])
		if err := in.addCall(line, value, took); err != nil {
			return err
		}
	}
}

// bounded ends with errTooLong when a record has more bytes than are left: after a stray quote, all
// that follows is one field.
type bounded struct {
	io.Reader
	left int
}

var errTooLong = errors.New("a record is too long")

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.Reader.Read(p)
	b.left -= n
	return n, err
}

// addCall counts a call of a group by its latency.
func (in *input) addCall(line int, value, took string) error {
	d, expected := in.Unit.latency(took)
	if expected != "" {
		return in.wrong(line, quote(took)+" in "+strconv.Quote(in.Field), expected)
	}
	c, err := in.group(line, value)
	if err == nil {
		c.add(d, 1)
	}
	return err
}

// badRecord returns the error of the record after the last one read, on the given line or after it.
func (in *input) badRecord(err error, line int) error {
	if errors.Is(err, errTooLong) {
		return in.wrong(line, "more than 1 MiB", "a record, with quotes doubled inside quotes")
	}
	var bad *csv.ParseError
	if !errors.As(err, &bad) {
		return err
	}
	if errors.Is(bad.Err, csv.ErrFieldCount) {
		return in.wrong(bad.StartLine, "another number of columns", "as many as in the header")
	}
	return in.wrong(bad.StartLine, bad.Err.Error(), "CSV, with quotes doubled inside quotes")
}
