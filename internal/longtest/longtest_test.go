package longtest_test

import (
	"testing"

	"github.com/grpchedge/hedge/internal/longtest"
)

// TestSizes reads every value of HEDGE_TESTS.
func TestSizes(t *testing.T) {
	for value, want := range map[string][3]int{"": {1, 1, 1}, "long": {2, 2, 3}, "full": {3, 2, 3}} {
		t.Setenv("HEDGE_TESTS", value)
		cases := longtest.First(1, []int{1, 2, 3})
		if got := [3]int{longtest.Table(1, 2, 3), longtest.Size(1, 2), len(cases)}; got != want {
			t.Errorf("HEDGE_TESTS=%q: table, size and cases are %v, want %v", value, got, want)
		}
		if longtest.Long() != (value != "") || longtest.Full() != (value == "full") {
			t.Errorf("HEDGE_TESTS=%q: Long %v, Full %v", value, longtest.Long(), longtest.Full())
		}
	}
	t.Setenv("HEDGE_TESTS", "Long")
	defer func() {
		if recover() == nil {
			t.Error("an unknown value is accepted")
		}
	}()
	longtest.Long()
}
