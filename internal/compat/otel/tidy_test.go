package otel_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const user = `package main

import (
	"go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats/opentelemetry"

	"github.com/grpchedge/hedge"
	hedgeotel "github.com/grpchedge/hedge/otel"
)

func main() {
	s, _ := hedge.New(hedge.WithAllMethods())
	plugin := opentelemetry.Options{MetricsOptions: opentelemetry.MetricsOptions{MeterProvider: metric.NewMeterProvider()}}
	conn, _ := grpc.NewClient("dns:///greeter.example", hedgeotel.DialOptions(s, plugin)...)
	conn.Close()
}
`

// TestModTidy runs the commands of the quick start in an empty folder, and where an old gRPC is
// required, which lacks a package that hedgeotel needs. They fail without the required module otel.
func TestModTidy(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, edits := range map[string][]string{
		"an empty folder": nil,
		"an old gRPC":     {"-require=google.golang.org/grpc@v1.65.0"},
		"a module of the package, dropped": {"-require=google.golang.org/grpc@v1.65.0",
			"-require=google.golang.org/grpc/stats/opentelemetry@v0.0.0-20241028142157-ada6787961b3",
			"-droprequire=google.golang.org/grpc/stats/opentelemetry"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			run := func(args ...string) {
				t.Helper()
				command := exec.Command("go", args...)
				command.Dir, command.Env = folder, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
				if text, err := command.CombinedOutput(); err != nil {
					t.Fatalf("go %q: %v\n%s", args, err, text)
				}
			}
			if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(user), 0o600); err != nil {
				t.Fatal(err)
			}
			run("mod", "init", "service.example")
			for _, edit := range edits {
				run("mod", "edit", edit)
			}
			run("mod", "edit", "-replace=github.com/grpchedge/hedge="+root,
				"-replace=github.com/grpchedge/hedge/otel="+filepath.Join(root, "otel"))
			run("mod", "edit", "-require=github.com/grpchedge/hedge/otel@v0.0.0")
			run("mod", "tidy")
			run("vet", ".")
		})
	}
}
