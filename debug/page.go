package debug

import (
	"html/template"
	"io"
	"time"
)

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"count": count, "percent": percent, "short": short, "counts": otherCounts, "helped": helped,
	"interval": interval, "bar": func(share float64) int { return int(100*share + 0.5) },
}).ParseFS(assets, "page.html"))

// view is what the page is made from.
type view struct {
	*snapshot
	Targets []targetView
	Clock   string
}

// targetView is a target and its methods.
type targetView struct {
	Name    string
	Methods []methodView
}

type methodView struct {
	row
	Latency *chart // of the window
	Tail    *chart // p99 of the last ten minutes
	Load    *chart // extra load of the last ten minutes
}

// writePage writes the page, or only the part of it that changes.
func (s *snapshot) writePage(w io.Writer, part bool) error {
	v := view{snapshot: s, Clock: s.At.Format("15:04:05")}
	for i, m := range s.Methods {
		if i == 0 || m.Stats.Target != v.Targets[len(v.Targets)-1].Name {
			v.Targets = append(v.Targets, targetView{Name: m.Stats.Target})
		}
		t := &v.Targets[len(v.Targets)-1]
		t.Methods = append(t.Methods, methodView{m, latencyChart(m.Curve), tailChart(s.At, m.History), loadChart(s.At, m.History, s.BudgetPercent)})
	}
	if part {
		return page.ExecuteTemplate(w, "main", v)
	}
	return page.Execute(w, v)
}

// interval formats an interval of confidence.
func interval(low, high time.Duration) string {
	if high == 0 {
		return "too few calls to say"
	}
	return short(low) + " to " + short(high)
}
