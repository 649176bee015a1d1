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
	records := csv.NewReader(r)
	records.ReuseRecord = true
	header, err := records.Read()
	if err != nil {
		return in.badRecord(err)
	}
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
	header = slices.Clone(header)
	line, _ := records.FieldPos(0)
	field, err := in.column(line, header, in.Field)
	if err != nil {
		return err
	}
	by := -1
	if in.By != "" {
		if by, err = in.column(line, header, in.By); err != nil {
			return err
		}
	}
	for {
		record, err := records.Read()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return in.badRecord(err)
		}
		in.aLine()
		value := ""
		if by >= 0 {
			value = record[by]
		}
		line, _ := records.FieldPos(field)
		if err := in.addCall(line, value, strings.TrimSpace(record[field])); err != nil {
			return err
		}
	}
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

// column returns the index of a column.
func (in *input) column(line int, header []string, name string) (int, error) {
	for i, column := range header {
		if strings.TrimSpace(column) == name {
			return i, nil
		}
	}
	return 0, in.wrong(line, quote(strings.Join(header, ",")), "a header with the column "+strconv.Quote(name))
}

// badRecord says what is wrong with a record.
func (in *input) badRecord(err error) error {
	var bad *csv.ParseError
	if !errors.As(err, &bad) {
		return err
	}
	switch {
	case errors.Is(bad.Err, csv.ErrFieldCount):
		return in.wrong(bad.Line, "another number of columns", "as many as in the header")
	default:
		return in.wrong(bad.Line, bad.Err.Error(), "CSV, with quotes doubled inside of quotes")
	}
}
