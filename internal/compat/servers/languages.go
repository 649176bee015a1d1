package main

import (
	"context"
	"embed"
	"os"
	"os/exec"
	"path/filepath"
)

// hello has a small server in each language.
//
//go:embed hello
var hello embed.FS

// What is installed, at the versions that docs/servers.md speaks of. Those of Java are in hello/pom.xml.
const (
	grpcJS        = "1.14.7"
	grpcio        = "1.85.1"
	armeria       = "1.32.5"
	grpcJava      = "1.76.0"
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
	return &Program{Version: version, Folder: folder, Command: func(port, _ string) *exec.Cmd {
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
		if _, err := m.run(ctx, folder, "npm", "install", "--no-save", "--silent", "--prefix", ".", "@grpc/grpc-js@"+grpcJS); err != nil {
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
		folder, err := m.place("java", "Hello.java", "pom.xml")
		if err != nil {
			return nil, err
		}
		if there, err := m.installed(filepath.Join(folder, "Hello.class")); err != nil {
			return nil, err
		} else if !there {
			if _, err := m.run(ctx, folder, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"); err != nil {
				return nil, err
			}
			if _, err := m.run(ctx, folder, "javac", "-cp", javaClassPath, "Hello.java"); err != nil {
				return nil, err
			}
		}
		return serve(folder, version, "java", "-cp", javaClassPath, "Hello", server), nil
	}
}
