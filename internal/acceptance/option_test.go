package acceptance_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// TestNew_Ranges has the ends of each option's range, which work, and values beyond them: the error
// begins with the option and the value.
func TestNew_Ranges(t *testing.T) {
	const all = math.MaxInt // of an int, which has 32 bits on some machines
	trigger := hedge.WithTrigger
	policy := `{"methodConfig": [{"name": [{"service": "a", "method": "B"}], "hedgingPolicy": {"maxAttempts": 1}}]}`
	off := hedge.WithOff(true)
	for want, opts := range map[string][]hedge.Option{
		"": {nil, trigger(hedge.Percentile(math.SmallestNonzeroFloat64)),
			trigger(hedge.Percentile(math.Nextafter(1, 0))), trigger(hedge.Fixed(0)), trigger(hedge.Fixed(all)),
			trigger(hedge.Auto(nil)), trigger(hedge.Auto(hedge.NoLaterThan(all))),
			hedge.WithMaxHedges(0), hedge.WithMaxHedges(4),
			hedge.WithBudgetPercent(0), hedge.WithBudgetPercent(400), hedge.WithMinDelay(0), hedge.WithMinDelay(all),
			hedge.WithControl(100), hedge.WithHedgeLimit(1, ms), hedge.WithHedgeLimit(all, ms), hedge.WithWarmup(0, 0),
			hedge.WithWarmup(all, all), hedge.WithWindow(10 * ms), hedge.WithWindow(all), hedge.WithMaxMethods(1),
			hedge.WithMaxMethods(all), hedge.WithNonFatalCodes(), hedge.WithFailover()},
		"WithTrigger(Percentile(0)): quantile must be between 0 and 1": {trigger(hedge.Percentile(0))},
		"WithTrigger(Percentile(1)): quantile must be between 0 and 1": {trigger(hedge.Percentile(1))},
		"WithTrigger(Percentile(NaN)): quantile must be":               {trigger(hedge.Percentile(math.NaN()))},
		"WithTrigger(Fixed(-1s)): delay must not be negative":          {trigger(hedge.Fixed(-time.Second))},
		"NoLaterThan(0s): must be positive":                            {trigger(hedge.Auto(hedge.NoLaterThan(0)))},
		"NoLaterThan(-1s): must be positive": {
			trigger(hedge.Auto(hedge.NoLaterThan(-time.Second)))},
		"WithMaxHedges(-1)":        {hedge.WithMaxHedges(-1)},
		"WithMaxHedges(5)":         {hedge.WithMaxHedges(5)},
		"WithBudgetPercent(-1)":    {hedge.WithBudgetPercent(-1)},
		"WithBudgetPercent(401)":   {hedge.WithBudgetPercent(401)},
		"WithBudgetPercent(NaN)":   {hedge.WithBudgetPercent(math.NaN())},
		"WithControl(-1)":          {hedge.WithControl(-1)},
		"WithControl(100.1)":       {hedge.WithControl(100.1)},
		"WithControl(NaN)":         {hedge.WithControl(math.NaN())},
		"WithLogger(nil)":          {hedge.WithLogger(nil)},
		"WithTrace(nil)":           {hedge.WithTrace(nil)},
		"WithTargetName(nil)":      {hedge.WithTargetName(nil)},
		"WithHedgeLimit(0, 1s)":    {hedge.WithHedgeLimit(0, time.Second)},
		"WithHedgeLimit(1, 0s)":    {hedge.WithHedgeLimit(1, 0)},
		"WithMinDelay(-1ns)":       {hedge.WithMinDelay(-1)},
		"WithWarmup(-1, 0s)":       {hedge.WithWarmup(-1, 0)},
		"WithWarmup(1, -5ms)":      {hedge.WithWarmup(1, -5*ms)},
		"WithWindow(9ms)":          {hedge.WithWindow(9 * ms)},
		"WithMaxMethods(0)":        {hedge.WithMaxMethods(0)},
		"WithMethods(): must have": {hedge.WithMethods()},
		"WithNonFatalCodes(OK)":    {hedge.WithNonFatalCodes(codes.OK)},
		"WithNonFatalCodes(Code(17)": {
			hedge.WithNonFatalCodes(codes.Unavailable, codes.Code(17))},
		"WithFailover(OK)": {hedge.WithFailover(codes.OK)},
		"WithFailover(Code(17)": {
			hedge.WithFailover(codes.Unavailable, codes.Code(17))},
		`WithReadOnlyMethods("pkg.Svc")`: {hedge.WithReadOnlyMethods("pkg.Svc")},
		`WithWaitForMessage("Get*")`:     {hedge.WithWaitForMessage("/a/B", "Get*")},
		"WithServiceConfig: ":            {hedge.WithServiceConfig("")},
		"WithServiceConfig: methodConfig[0] [a/B]: hedgingPolicy.maxAttempts: 1": {hedge.WithServiceConfig(policy)},
		`WithMethodOptions("/s/M"): WithMaxHedges(7)`: {
			hedge.WithMethodOptions("/s/M", hedge.WithMaxHedges(7))},
		`WithTargetOptions(""): must not be empty`:       {hedge.WithTargetOptions("", off)},
		`WithTargetOptions("\xff"): must be valid UTF-8`: {hedge.WithTargetOptions("\xff", off)},
		`WithTargetOptions("a"): WithMethodOptions("/s/M"): WithWindow cannot be set`: {
			hedge.WithTargetOptions("a", hedge.WithMethodOptions("/s/M", hedge.WithWindow(time.Minute)))},
		`WithTargetOptions("a"): WithMethodOptions("/s/M"): must not be given twice`: {
			hedge.WithTargetOptions("a", hedge.WithMethodOptions("/s/M"), hedge.WithMethodOptions("/s/M"))},
	} {
		for _, opt := range opts {
			s, err := hedge.New(hedge.WithAllMethods(), opt)
			switch {
			case want == "" && err == nil:
				hedgetest.Call(t, s, target, method, time.Microsecond)
			case want == "" || s != nil || err == nil || !strings.HasPrefix(err.Error(), "hedge: "+want):
				t.Errorf("the error is %q, want %q", err, want)
			}
		}
	}
}
