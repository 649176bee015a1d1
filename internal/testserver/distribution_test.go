package testserver_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
)

const ms = time.Millisecond

// sample draws n times, and returns the draws in ascending order, in ms.
func sample(distribution testserver.Distribution, n int) []float64 {
	rng := rand.New(rand.NewPCG(1, 2))
	draws := make([]float64, n)
	for i := range draws {
		draws[i] = float64(distribution.Draw(rng)) / float64(ms)
	}
	slices.Sort(draws)
	return draws
}

func moments(draws []float64) (mean, sd float64) {
	for _, x := range draws {
		mean += x
	}
	mean /= float64(len(draws))
	for _, x := range draws {
		sd += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(sd / float64(len(draws)))
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance*math.Max(math.Abs(want), 1e-9) {
		t.Errorf("%s = %.4g, want %.4g within %.1f%%", what, got, want, 100*tolerance)
	}
}

func TestDistributionMoments(t *testing.T) {
	longtest.Computation(t)
	for _, tt := range []struct {
		name         string
		distribution testserver.Distribution
		mean, sd     float64
	}{
		{"constant", testserver.Constant(5 * ms), 5, 0},
		{"uniform", testserver.Uniform(600*ms, 1000*ms), 800, 400 / math.Sqrt(12)},
		{"exponential", testserver.Exponential(8 * ms), 8, 8},
		{"lognormal", testserver.LogNormal(5*ms, 2*ms), 5, 2},
		{"lognormal, no spread", testserver.LogNormal(5*ms, 0), 5, 0},
		{"pareto, alpha 5", testserver.Pareto(3*ms, 5), 3.75, 3.75 / math.Sqrt(15)},
		{"straggler", testserver.Straggler(testserver.Constant(5*ms), 0.05, 10),
			5 * 1.45, 45 * math.Sqrt(0.05*0.95)},
		{"mixture", testserver.Mixture(
			testserver.Part{Weight: 3, Distribution: testserver.Constant(10 * ms)},
			testserver.Part{Weight: 1, Distribution: testserver.Constant(50 * ms)},
		), 20, 40 * math.Sqrt(0.25*0.75)},
		{"add", testserver.Add(testserver.Constant(5*ms), testserver.Uniform(0, 12*ms)),
			11, 12 / math.Sqrt(12)},
		{"add nothing", testserver.Add(), 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mean, sd := moments(sample(tt.distribution, 200_000))
			near(t, "mean", mean, tt.mean, 0.01)
			near(t, "sd", sd, tt.sd, 0.02)
		})
	}
}

// The quantiles are worked out from the formulas of the distributions.
func TestNamedDistributions(t *testing.T) {
	longtest.Computation(t)
	type quantiles map[float64]float64
	for _, tt := range []struct {
		name string
		want quantiles
	}{
		{"straggler", quantiles{0.5: 4.8, 0.9: 8.4, 0.99: 64}},
		{"fan-out", quantiles{0.5: 4.7, 0.9: 7.7, 0.995: 46}},
		{"ttft", quantiles{0.5: 15.7, 0.75: 20.2, 0.9: 198.5, 0.99: 242}},
		{"grpc-java", quantiles{0.5: 1.9, 0.925: 2001.8, 0.97: 5001.8, 0.995: 10001.8}},
		{"slow-one-percent", quantiles{0.5: 6.63, 0.95: 11.9, 0.9935: 800}},
		{"pareto", quantiles{0.5: 4.76, 0.9: 13.9, 0.99: 64.6}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			distribution := testserver.DistributionT(t, tt.name)
			draws := sample(distribution, 200_000)
			for q, want := range tt.want {
				near(t, "quantile", draws[int(q*float64(len(draws)))], want, 0.05)
			}
		})
	}
}

func TestParseDistribution(t *testing.T) {
	for s, mean := range map[string]float64{
		"constant:5ms":        5,
		"constant:0s":         0,
		"uniform:600ms,1s":    800,
		"exponential:8ms":     8,
		"lognormal:5ms,2ms":   5,
		"lognormal: 5ms, 2ms": 5,
		"pareto:3ms,5":        3.75,
		"straggler:1%,10":     5 * 1.09,
		"straggler:0.01,10":   5 * 1.09,
		"straggler":           5 * 1.45,
		"constant:1h2m3s":     3_723_000,
	} {
		distribution, err := testserver.ParseDistribution(s)
		if err != nil {
			t.Errorf("ParseDistribution(%q): %v", s, err)
			continue
		}
		got, _ := moments(sample(distribution, 200_000))
		near(t, s, got, mean, 0.02)
	}
}

func TestParseDistributionErrors(t *testing.T) {
	const forms = "straggler, fan-out, ttft, grpc-java, slow-one-percent, pareto, constant:latency, " +
		"uniform:low,high, exponential:mean, lognormal:mean,sd, pareto:scale,alpha, straggler:probability,factor"
	for s, want := range map[string]string{
		"":           `unknown distribution "": want one of ` + forms,
		"strangler":  `unknown distribution "strangler": want one of ` + forms,
		"ttft:5ms":   `unknown distribution "ttft:5ms": want one of ` + forms,
		"constant":   `distribution "constant": want constant:latency`,
		"constant:":  `distribution "constant:": "" is not a duration such as 5ms; want constant:latency`,
		"constant:5": `distribution "constant:5": "5" is not a duration such as 5ms; want constant:latency`,
		"constant:-5ms": `distribution "constant:-5ms": constant latency must be from 0 to 24h0m0s, got ` +
			`-5ms; want constant:latency`,
		"lognormal:5ms": `distribution "lognormal:5ms": want lognormal:mean,sd`,
		"lognormal:0s,2ms": `distribution "lognormal:0s,2ms": lognormal mean must be above 0 and at most ` +
			`24h0m0s, got 0s; want lognormal:mean,sd`,
		"pareto:3ms,x": `distribution "pareto:3ms,x": "x" is not a number or a percentage; want pareto:scale,alpha`,
		"straggler:150%,10": `distribution "straggler:150%,10": straggler probability must be from 0 to 1, got ` +
			`1.5; want straggler:probability,factor`,
		"straggler:1%,10,20": `distribution "straggler:1%,10,20": want straggler:probability,factor`,
	} {
		_, err := testserver.ParseDistribution(s)
		if err == nil || err.Error() != want {
			t.Errorf("ParseDistribution(%q): error\n%v, want\n%s", s, err, want)
		}
	}
}
