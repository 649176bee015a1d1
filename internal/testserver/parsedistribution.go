package testserver

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// straggling is the base of several named distributions: mostly 5 ms, at times ten times that.
func straggling(probability, factor float64) checked {
	return straggler{LogNormal(5*time.Millisecond, 2*time.Millisecond), probability, factor}
}

// named lists the distributions that [ParseDistribution] knows by name, in the order of its errors.
var named = []struct {
	name         string
	distribution Distribution
}{
	{"straggler", straggling(0.05, 10)},
	{"fan-out", straggling(0.01, 10)},
	{"ttft", Mixture(
		Part{0.80, LogNormal(15*time.Millisecond, 3*time.Millisecond)},
		Part{0.20, LogNormal(200*time.Millisecond, 25*time.Millisecond)},
	)},
	{"grpc-java", Add(
		LogNormal(2*time.Millisecond, time.Millisecond),
		Mixture(
			Part{0.90, Constant(0)},
			Part{0.05, Constant(2 * time.Second)},
			Part{0.04, Constant(5 * time.Second)},
			Part{0.01, Constant(10 * time.Second)},
		),
	)},
	{"slow-one-percent", Mixture(
		Part{0.987, LogNormal(7*time.Millisecond, 2500*time.Microsecond)},
		Part{0.013, Uniform(600*time.Millisecond, time.Second)},
	)},
	{"pareto", Pareto(3*time.Millisecond, 1.5)},
}

// families are the distributions that [ParseDistribution] builds from parameters.
var families = []struct {
	name   string
	params string
	build  func(p *params) checked
}{
	{"constant", "latency", func(p *params) checked { return constant{p.duration()} }},
	{"uniform", "low,high", func(p *params) checked { return uniform{p.duration(), p.duration()} }},
	{"exponential", "mean", func(p *params) checked { return exponential{p.duration()} }},
	{"lognormal", "mean,sd", func(p *params) checked { return logNormal{p.duration(), p.duration()} }},
	{"pareto", "scale,alpha", func(p *params) checked { return pareto{p.duration(), p.number()} }},
	{"straggler", "probability,factor", func(p *params) checked { return straggling(p.number(), p.number()) }},
}

// DistributionForms lists what [ParseDistribution] accepts, for the help text of a flag: the named
// distributions, then the families with their parameters.
func DistributionForms() []string {
	var forms []string
	for _, n := range named {
		forms = append(forms, n.name)
	}
	for _, f := range families {
		forms = append(forms, f.name+":"+f.params)
	}
	return forms
}

// ParseDistribution reads a distribution as a user types it: the name of a workload, such as
// "straggler" or "ttft", or a family with its parameters, such as
// "constant:5ms", "lognormal:5ms,2ms" or "straggler:1%,10", in which durations
// are in Go's syntax and numbers may be percentages. [DistributionForms] lists them all.
// An error names the part that it rejects.
func ParseDistribution(s string) (Distribution, error) {
	name, args, hasArgs := strings.Cut(s, ":")
	if !hasArgs {
		for _, n := range named {
			if n.name == name {
				return n.distribution, nil
			}
		}
	}
	for _, f := range families {
		if f.name != name {
			continue
		}
		form := f.name + ":" + f.params
		p := params{args: strings.Split(args, ",")}
		if !hasArgs || len(p.args) != len(strings.Split(f.params, ",")) {
			return nil, fmt.Errorf("distribution %q: want %s", s, form)
		}
		distribution := f.build(&p)
		err := p.err
		if err == nil {
			err = distribution.validate()
		}
		if err != nil {
			return nil, fmt.Errorf("distribution %q: %w; want %s", s, err, form)
		}
		return distribution, nil
	}
	return nil, fmt.Errorf("unknown distribution %q: want one of %s", s, strings.Join(DistributionForms(), ", "))
}

// params hands out the parameters of a distribution one by one and keeps the first error.
type params struct {
	args []string
	err  error
}

func (p *params) next() string {
	s := strings.TrimSpace(p.args[0])
	p.args = p.args[1:]
	return s
}

func (p *params) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *params) duration() time.Duration {
	s := p.next()
	d, err := time.ParseDuration(s)
	if err != nil {
		p.fail("%q is not a duration such as 5ms", s)
	}
	return d
}

func (p *params) number() float64 {
	s := p.next()
	digits, percent := strings.CutSuffix(s, "%")
	x, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		p.fail("%q is not a number or a percentage", s)
	}
	if percent {
		x /= 100
	}
	return x
}
