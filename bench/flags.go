package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/bench/picture"
	"github.com/grpchedge/hedge/internal/testserver"
)

// The largest values of flags. Beyond them a run would take too much memory, too many sockets or
// too many goroutines.
const (
	maxCalls       = 10_000_000
	maxConcurrency = 10_000
	maxBackends    = 100
)

// whole is a flag for a whole number within bounds.
type whole struct {
	value     *int
	low, high int
}

func wholeFlag(fs *flag.FlagSet, value *int, name string, preset, low, high int, usage string) {
	*value = preset
	fs.Var(whole{value, low, high}, name, usage)
}

func (w whole) String() string {
	if w.value == nil {
		return ""
	}
	return strconv.Itoa(*w.value)
}

func (w whole) Set(s string) error {
	n, err := strconv.Atoi(s)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && (n < w.low || n > w.high):
		return fmt.Errorf("must be %d to %d", w.low, w.high)
	case err != nil:
		return errors.New("not a whole number")
	}
	*w.value = n
	return nil
}

// wholes is a flag for a list of whole numbers within bounds, separated by commas.
type wholes struct {
	values    *[]int
	low, high int
}

func wholesFlag(fs *flag.FlagSet, values *[]int, name string, preset []int, low, high int, usage string) {
	*values = preset
	fs.Var(wholes{values, low, high}, name, usage)
}

func (w wholes) String() string {
	if w.values == nil {
		return ""
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*w.values), " ", ","), "[]")
}

func (w wholes) Set(s string) error {
	var values []int
	for part := range strings.SplitSeq(s, ",") {
		n := 0
		if err := (whole{&n, w.low, w.high}).Set(strings.TrimSpace(part)); err != nil {
			return fmt.Errorf("%q: %w", part, err)
		}
		values = append(values, n)
	}
	*w.values = values
	return nil
}

// distribution is a flag for a distribution of latency.
type distribution struct{ value *string }

func distributionFlag(fs *flag.FlagSet, value *string, name, preset string) {
	*value = preset
	fs.Var(distribution{value}, name, "`distribution` of what one attempt of a unary call takes: "+strings.Join(
		testserver.DistributionForms(), ", "))
}

func (l distribution) String() string {
	if l.value == nil {
		return ""
	}
	return *l.value
}

func (l distribution) Set(s string) error {
	if _, err := testserver.ParseDistribution(s); err != nil {
		return err
	}
	*l.value = s
	return nil
}

// optionFlag is a flag that adds a scheduler option. Without the flag the option is unset. The
// library itself rejects values out of range.
func optionFlag[T any](fs *flag.FlagSet, options *[]hedge.Option, name, usage string,
	parse func(string) (T, error), option func(T) hedge.Option) {
	fs.Func(name, usage, func(s string) error {
		value, err := parse(s)
		if err != nil {
			return err
		}
		o := option(value)
		if _, err := hedge.New(hedge.WithAllMethods(), o); err != nil {
			return err
		}
		*options = append(*options, o)
		return nil
	})
}

func parseFloat(s string) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, errors.New("not a number")
	}
	return x, nil
}

func parseInt(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, errors.New("not a whole number")
	}
	return n, nil
}

// pictureFlag is a flag for the path of a picture. It rejects a path that cannot be written, before
// anything runs.
func pictureFlag(fs *flag.FlagSet, path *string, name, preset string) {
	*path = preset
	fs.Func(name, fmt.Sprintf("`path` of the picture, .png or .svg; empty for none (default %s)", preset),
		func(s string) error {
			if s != "" {
				if !picture.CanDraw(s) {
					return fmt.Errorf("must end in .png or .svg, not %q", filepath.Ext(s))
				}
				if info, err := os.Stat(filepath.Dir(s)); err != nil {
					return err
				} else if !info.IsDir() {
					return fmt.Errorf("%s is not a directory", filepath.Dir(s))
				}
			}
			*path = s
			return nil
		})
}

// duration is a flag for a time within bounds.
type duration struct {
	value     *time.Duration
	low, high time.Duration
}

func durationFlag(fs *flag.FlagSet, value *time.Duration, name string, preset, low, high time.Duration, usage string) {
	*value = preset
	fs.Var(duration{value, low, high}, name, usage)
}

func (d duration) String() string {
	if d.value == nil {
		return ""
	}
	return d.value.String()
}

func (d duration) Set(s string) error {
	t, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("not a time such as 50ms or 1m")
	}
	if t < d.low || t > d.high {
		return fmt.Errorf("must be %v to %v", d.low, d.high)
	}
	*d.value = t
	return nil
}

// names is a flag for a list of known names, separated by commas.
type names struct {
	values *[]string
	known  []string
}

func namesFlag(fs *flag.FlagSet, values *[]string, name string, known []string, usage string) {
	fs.Var(names{values, known}, name, usage+": "+strings.Join(known, ", "))
}

func (n names) String() string {
	if n.values == nil {
		return ""
	}
	return strings.Join(*n.values, ",")
}

func (n names) Set(s string) error {
	var values []string
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if !slices.Contains(n.known, part) {
			return fmt.Errorf("there is no %q, only %s", part, strings.Join(n.known, ", "))
		}
		if !slices.Contains(values, part) {
			values = append(values, part)
		}
	}
	*n.values = values
	return nil
}

// folderFlag is a flag for the path of a folder. The folder need not exist.
func folderFlag(fs *flag.FlagSet, path *string, name, preset, usage string) {
	*path = preset
	fs.Func(name, usage+fmt.Sprintf(" (default %s)", preset), func(s string) error {
		if info, err := os.Stat(s); s == "" || err == nil && !info.IsDir() {
			return errors.New("not a folder")
		}
		*path = s
		return nil
	})
}
