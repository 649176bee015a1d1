package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// command is a command, and the figures that a page takes from its output.
type command struct {
	page, line string
	slow       bool
	within     float64 // how much a figure may differ, as a share of it, beside rounding
	claims     []claim
}

// claim is a text of the page, and where the output has its figures.
type claim struct {
	text     string
	asserted bool // the command fails where the figures are wrong
	rows     bool // the output has all rows of the table that begins with the text
	sources  []source
}

// source is an expression for one line of the output, or several. Each of its groups is a figure.
type source struct {
	ratio   bool   // the figures are shares of the first group, in percent
	share   bool   // the figures are shares of 1
	how     string // how several lines become one
	pattern *regexp.Regexp
}

// parse reads docs/figures.txt. Its head explains the format.
func parse(text string) ([]*command, error) {
	var list []*command
	page := ""
	for i, line := range strings.Split(text, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		var err error
		switch last := len(list) - 1; {
		case line == "" || word == "//":
		case word == "page":
			page = rest
		case word == "run" || word == "slow":
			list = append(list, &command{page: page, line: rest, slow: word == "slow"})
		case last < 0:
			err = fmt.Errorf("no command before it")
		case word == "within":
			list[last].within, err = strconv.ParseFloat(strings.TrimSuffix(rest, "%"), 64)
			list[last].within /= 100
		case line[0] != '\t':
			list[last].claims = append(list[last].claims, claim{text: line})
		case len(list[last].claims) == 0:
			err = fmt.Errorf("no text of the page before it")
		default:
			c := &list[last].claims[len(list[last].claims)-1]
			c.rows, c.asserted = c.rows || line == "\trows", c.asserted || line == "\tasserted"
			if c.rows || c.asserted {
				break
			}
			var s source
			s, err = readSource(line[1:])
			c.sources = append(c.sources, s)
		}
		if err != nil {
			return nil, fmt.Errorf("docs/figures.txt:%d: %w", i+1, err)
		}
	}
	for _, c := range list {
		for _, claim := range c.claims {
			if !claim.asserted && !claim.rows && len(claim.sources) == 0 {
				return nil, fmt.Errorf("docs/figures.txt: nothing is said of %q", claim.text)
			}
		}
	}
	return list, nil
}

func readSource(line string) (s source, err error) {
	for {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "mean", "least", "most", "sum":
			s.how = word
		case "ratio":
			s.ratio = true
		case "share":
			s.share = true
		default:
			s.pattern, err = regexp.Compile(strings.ReplaceAll(line, "#", number))
			return s, err
		}
		line = rest
	}
}

// find finds the text in a page, and its figures.
func (c claim) find(page string) (text string, figures []figure, err error) {
	words := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	pattern := strings.ReplaceAll(regexp.QuoteMeta(words(c.text)), `#`, `\**`+number+`\**`)
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(words(page), -1)
	if len(found) != 1 {
		return c.text, nil, fmt.Errorf("the page has it %d times", len(found))
	}
	for _, said := range found[0][1:] {
		f, err := readFigure(said)
		if err != nil {
			return c.text, nil, err
		}
		figures = append(figures, f)
	}
	// "954 → 3.0 ms" and "3.0 ms instead of 954" are both in ms.
	for i := range figures {
		if last := len(figures) - 1 - i; last < len(figures)-1 && figures[last].unit == "" {
			figures[last].unit = figures[last+1].unit
		}
	}
	for i := range figures {
		if i > 0 && figures[i].unit == "" {
			figures[i].unit = figures[i-1].unit
		}
	}
	return found[0][0], figures, nil
}

// compare returns the output's values for the page's figures, and whether they match.
func (c claim) compare(page string, figures []figure, output string, within float64) (now []string, fresh bool,
	err error) {
	if c.rows {
		return c.compareRows(page, output)
	}
	if c.asserted {
		return []string{"the command fails where they are wrong"}, true, nil
	}
	var all []float64
	for _, s := range c.sources {
		values, err := s.values(output, figures[min(len(all), len(figures)):])
		if err != nil {
			return nil, false, fmt.Errorf("%w: %v", err, s.pattern)
		}
		all = append(all, values...)
	}
	if len(all) != len(figures) {
		return nil, false, fmt.Errorf("the page has %d figures, the output %d", len(figures), len(all))
	}
	fresh = true
	for i, value := range all {
		now = append(now, strconv.FormatFloat(value, 'g', 4, 64))
		fresh = fresh && figures[i].fresh(value, within)
	}
	return now, fresh, nil
}

// compareRows looks in the output for each row of the table that begins with the text.
func (c claim) compareRows(page, output string) (now []string, fresh bool, err error) {
	_, table, _ := strings.Cut(page, c.text+"\n")
	rows := strings.Split(strings.SplitN(table, "\n\n", 2)[0], "\n")
	for _, row := range rows[1:] {
		if row = strings.TrimSpace(row); !strings.Contains(output, row) {
			now = append(now, "gone: "+row)
		}
	}
	return append(now, fmt.Sprintf("%d rows", len(rows)-1)), len(now) == 0, nil
}

// values returns the figures that the output has, in the units of the page's.
func (s source) values(output string, page []figure) ([]float64, error) {
	lines := s.pattern.FindAllStringSubmatch(output, -1)
	if len(lines) == 0 {
		return nil, errors.New("the output has no such line")
	}
	columns := s.pattern.NumSubexp()
	var all []float64 // line by line
	for _, line := range lines {
		for _, text := range line[1:] {
			at, unit := len(all), ""
			if s.how != "" {
				at %= columns
			}
			if at < len(page) && !s.ratio {
				unit = page[at].unit
			}
			f, err := readFigure(text)
			if err != nil {
				return nil, err
			}
			value, err := f.in(unit)
			if err != nil {
				return nil, err
			}
			all = append(all, value)
		}
	}
	if s.how != "" {
		all = reduce(s.how, all, columns)
	}
	percent := 1.0
	if s.share {
		percent = 100
	}
	if s.ratio {
		percent = 100 / all[0]
		all = all[1:]
	}
	for i := range all {
		all[i] *= percent
	}
	return all, nil
}

// named puts the name of the test before each line of what "go test -v" prints.
func named(output string) string {
	lines, name := strings.Split(output, "\n"), ""
	for i, line := range lines {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "===" {
			name = words[2] + ": "
		}
		lines[i] = name + line
	}
	return strings.Join(lines, "\n")
}
