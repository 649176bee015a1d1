package whatif

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// readJSON reads a latency from one field of each line, which is a JSON object.
func (in *input) readJSON(r io.Reader) error {
	if in.Field == "" {
		return in.wrong(1, "JSON", "the name of the field with the latencies, given with -field")
	}
	return in.eachLine(r, func(number int, line []byte) error {
		if line[0] != '{' || !gjson.ValidBytes(line) {
			return in.wrong(number, quote(string(line)), "a JSON object")
		}
		get := func(name string) (string, bool) {
			v := gjson.GetBytes(line, gjson.Escape(name))
			return strings.TrimSpace(v.String()), v.Exists()
		}
		if ok, missing := in.Where.passes(get); missing != "" {
			return in.noField(number, line, missing)
		} else if !ok {
			return nil
		}
		took := gjson.GetBytes(line, gjson.Escape(in.Field))
		if took.Type != gjson.String && took.Type != gjson.Number {
			return in.noField(number, line, in.Field)
		}
		value := ""
		if in.By != "" {
			var ok bool
			if value, ok = get(in.By); !ok {
				return in.noField(number, line, in.By)
			}
		}
		text := took.Raw
		if took.Type == gjson.String {
			text = strings.TrimSpace(took.Str)
		}
		return in.addCall(number, value, text)
	})
}

func (in *input) noField(number int, line []byte, name string) error {
	return in.wrong(number, quote(string(line)),
		fmt.Sprintf("an object with a string or a number as %s", strconv.Quote(name)))
}
