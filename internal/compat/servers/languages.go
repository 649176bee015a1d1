package main

import (
	"context"
	"embed"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// hello has a small server in each language.
//
//go:embed hello
var hello embed.FS

// The packages that are installed, at the versions in docs/servers.md. hello/pom.xml has the
// versions for Java.
const (
	grpcJS        = "1.14.7"
	grpcio        = "1.85.1"
	armeria       = "1.32.5"
	grpcJava      = "1.76.0"
	reactorNetty  = "1.2.3"
	tonic         = "0.14.9" // as hello/Cargo.toml has it
	javaClassPath = ".:lib/*"
)

// place writes files of hello into a server's folder.
func (m *Machine) place(name string, files ...string) (folder string, err error) {
	if folder, err = m.folder(name); err != nil {
		return "", err
	}
	for _, file := range files {
		text, err := hello.ReadFile("hello/" + file)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(folder, file), text, 0o644); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// installed reports whether something is in a folder, and is an error if it is not and may not be.
func (m *Machine) installed(path string) (bool, error) {
	if _, err := os.Stat(path); err == nil {
		return true, nil
	}
	if !m.Install {
		return false, errNotInstalled
	}
	return false, nil
}

// serve returns a program that listens at the port that is its last argument.
func serve(folder, version, name string, args ...string) *Program {
	return &Program{Version: version, Folder: folder, Command: func(port string, _ []string) *exec.Cmd {
		return exec.Command(name, append(args[:len(args):len(args)], port)...)
	}}
}

func prepareNode(ctx context.Context, m *Machine) (*Program, error) {
	folder, err := m.place("grpc-js", "hello.js")
	if err != nil {
		return nil, err
	}
	if there, err := m.installed(filepath.Join(folder, "node_modules", "@grpc", "grpc-js")); err != nil {
		return nil, err
	} else if !there {
		if _, err := m.run(ctx, folder, "npm", "install", "--no-save", "--silent", "--prefix", ".",
			"@grpc/grpc-js@"+grpcJS); err != nil {
			return nil, err
		}
	}
	node, err := m.run(ctx, folder, "node", "--version")
	if err != nil {
		return nil, err
	}
	return serve(folder, grpcJS+", Node.js "+versionIn(node), "node", "hello.js"), nil
}

func preparePython(ctx context.Context, m *Machine) (*Program, error) {
	folder, err := m.place("grpcio", "hello.py")
	if err != nil {
		return nil, err
	}
	if there, err := m.installed(filepath.Join(folder, "grpc")); err != nil {
		return nil, err
	} else if !there {
		if _, err := m.run(ctx, folder, "pip", "install", "--quiet", "--target", ".", "grpcio=="+grpcio); err != nil {
			return nil, err
		}
	}
	// The script's folder is the first place where Python looks for packages.
	return serve(folder, grpcio, "python3", "hello.py"), nil
}

// prepareJava returns how to prepare a server of hello/Hello.java.
func prepareJava(server, version string) func(context.Context, *Machine) (*Program, error) {
	return func(ctx context.Context, m *Machine) (*Program, error) {
		folder, err := m.compileJava(ctx, "Hello")
		if err != nil {
			return nil, err
		}
		return serve(folder, version, "java", "-cp", javaClassPath, "Hello", server), nil
	}
}

// prepareReactorNetty is about an HTTP server: it serves no gRPC.
func prepareReactorNetty(ctx context.Context, m *Machine) (*Program, error) {
	folder, err := m.compileJava(ctx, "Web")
	if err != nil {
		return nil, err
	}
	program := serve(folder, reactorNetty, "java", "-cp", javaClassPath, "Web")
	program.HTTP = true
	return program, nil
}

// compileJava compiles a program of hello, with the packages of hello/pom.xml.
func (m *Machine) compileJava(ctx context.Context, name string) (folder string, err error) {
	if folder, err = m.place("java", name+".java", "Unary.java", "pom.xml"); err != nil {
		return "", err
	}
	if there, err := m.installed(filepath.Join(folder, name+".class")); err != nil || there {
		return folder, err
	}
	if _, err := m.run(ctx, folder, "mvn", "-q", "-B", "dependency:copy-dependencies",
		"-DoutputDirectory=lib"); err != nil {
		return "", err
	}
	_, err = m.run(ctx, folder, "javac", "-cp", javaClassPath, name+".java")
	return folder, err
}

// prepareTonic returns how to prepare hello/hello.rs, with its arguments before the port.
func prepareTonic(args ...string) func(context.Context, *Machine) (*Program, error) {
	return func(ctx context.Context, m *Machine) (*Program, error) {
		folder, err := m.place("tonic", "Cargo.toml", "hello.rs")
		if err != nil {
			return nil, err
		}
		built := filepath.Join(folder, "target", "release", "hello")
		if there, err := m.installed(built); err != nil {
			return nil, err
		} else if !there {
			if _, err := m.run(ctx, folder, "cargo", "build", "--quiet", "--release"); err != nil {
				return nil, err
			}
		}
		return serve(folder, tonic, built, args...), nil
	}
}

// portVariable is set for a process of this program that is a server of grpc-go.
const portVariable = "SERVERS_PORT"

// prepareGo returns this program itself as a server.
func prepareGo(_ context.Context, m *Machine) (*Program, error) {
	folder, err := m.folder("grpc-go")
	if err != nil {
		return nil, err
	}
	path, err := os.Executable()
	return &Program{Version: moduleVersion("google.golang.org/grpc"), Folder: folder,
		Command: func(port string, _ []string) *exec.Cmd {
			command := exec.Command(path)
			command.Env = append(os.Environ(), portVariable+"="+port)
			return command
		}}, err
}

// helloServer is what prepareGo runs: the unary method alone.
type helloServer struct {
	testpb.UnimplementedTestServiceServer
	latency testserver.Distribution
}

func serveHello(port string) error {
	latency, err := testserver.ParseDistribution("straggler")
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	testpb.RegisterTestServiceServer(server, helloServer{latency: latency})
	return server.Serve(listener)
}

func (s helloServer) Unary(ctx context.Context, request *testpb.Request) (*testpb.Reply, error) {
	select {
	case <-time.After(s.latency.Draw(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))):
		return &testpb.Reply{Id: request.Id}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}
