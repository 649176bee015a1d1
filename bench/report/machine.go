package report

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// machine describes the machine that this runs on.
func machine() string {
	cpu := "an unnamed processor"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				cpu = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
				break
			}
		}
	}
	return fmt.Sprintf("Measured on %s/%s, %s, %d cores, %s; client and servers share them.", runtime.GOOS,
		runtime.GOARCH, cpu, runtime.GOMAXPROCS(0), runtime.Version())
}
