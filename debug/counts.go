package debug

import (
	"reflect"
	"regexp"
	"strings"

	"github.com/grpchedge/hedge/stats"
)

// named is a count with its name in words.
type named struct {
	Name  string
	Value int64
	Share float64 // of the greatest, for a bar
}

// shownElsewhere are the counts that otherCounts leaves out.
var shownElsewhere = map[string]bool{"Calls": true, "Hedged": true, "Hedges": true, "HedgeWins": true, "PrimaryWins": true}

var camel = regexp.MustCompile(`([a-z])([A-Z])`)

// otherCounts returns the counts above 0 that say why no hedge was sent, and the like: all fields of Stats that there are.
func otherCounts(s stats.Counts) []named {
	var rows []named
	most := int64(1)
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if n, ok := v.Field(i).Interface().(int64); ok && n > 0 && !shownElsewhere[field.Name] {
			rows = append(rows, named{Name: strings.ToLower(camel.ReplaceAllString(field.Name, "$1 $2")), Value: n})
			most = max(most, n)
		}
	}
	for i := range rows {
		rows[i].Share = float64(rows[i].Value) / float64(most)
	}
	return rows
}
