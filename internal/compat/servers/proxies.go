package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
)

// proxy is a proxy of a Debian package.
type proxy struct {
	name, program, pack string
	version             []string // arguments that print the version
	config              string   // a template of Place; it is written to the file "config"
	args                []string // templates likewise
}

// Place is what a proxy's configuration is about.
type Place struct {
	Folder, Port  string
	Backend       string // address of the test server
	BackendPort   string
	AsRoot        bool
	User          string
	ModulesFolder string
}

var proxies = []proxy{
	{
		name: "Apache httpd, mod_proxy_http2", program: "apache2", pack: "apache2", version: []string{"-v"},
		args: []string{"-D", "FOREGROUND", "-f", "{{.Folder}}/config"},
		config: `ServerName localhost
ServerRoot {{.Folder}}
Listen 127.0.0.1:{{.Port}}
PidFile {{.Folder}}/pid
ErrorLog {{.Folder}}/error.log
LoadModule mpm_event_module {{.ModulesFolder}}/mod_mpm_event.so
LoadModule authz_core_module {{.ModulesFolder}}/mod_authz_core.so
LoadModule http2_module {{.ModulesFolder}}/mod_http2.so
LoadModule proxy_module {{.ModulesFolder}}/mod_proxy.so
LoadModule proxy_http2_module {{.ModulesFolder}}/mod_proxy_http2.so
{{if .AsRoot}}User {{.User}}
Group {{.User}}
{{end}}Protocols h2c
ProxyPass / h2c://{{.Backend}}/
ProxyPassReverse / h2c://{{.Backend}}/
`,
	},
	{
		name: "nginx, grpc_pass", program: "nginx", pack: "nginx-light", version: []string{"-v"},
		args: []string{"-p", "{{.Folder}}", "-c", "{{.Folder}}/config", "-e", "{{.Folder}}/error.log"},
		config: `daemon off;
{{if .AsRoot}}user {{.User}};
{{end}}pid {{.Folder}}/pid;
events { worker_connections 4096; }
http {
	access_log off;
	client_body_temp_path {{.Folder}}/body;
	proxy_temp_path {{.Folder}}/proxy;
	fastcgi_temp_path {{.Folder}}/fastcgi;
	uwsgi_temp_path {{.Folder}}/uwsgi;
	scgi_temp_path {{.Folder}}/scgi;
	upstream backend { server {{.Backend}}; keepalive 64; }
	server {
		listen 127.0.0.1:{{.Port}} http2;
		location / { grpc_pass grpc://backend; }
	}
}
`,
	},
	{
		name: "nghttpx", program: "nghttpx", pack: "nghttp2-proxy", version: []string{"--version"},
		args: []string{
			"--conf={{.Folder}}/config", "--accesslog-file=/dev/null",
			"--frontend=127.0.0.1,{{.Port}};no-tls", "--backend=127.0.0.1,{{.BackendPort}};;proto=h2",
		},
		config: "# everything else is at its default\n",
	},
	{
		name: "HAProxy", program: "haproxy", pack: "haproxy", version: []string{"-v"},
		args: []string{"-db", "-f", "{{.Folder}}/config"},
		config: `defaults
	mode http
	timeout connect 5s
	timeout client 60s
	timeout server 60s
frontend front
	bind 127.0.0.1:{{.Port}} proto h2
	default_backend back
backend back
	server test {{.Backend}} proto h2
`,
	},
}

// prepare finds the proxy, or installs its package.
func (p proxy) prepare(ctx context.Context, m *Machine) (*Program, error) {
	folder, err := m.folder(p.program)
	if err != nil {
		return nil, err
	}
	path, err := p.find()
	if err != nil {
		if !m.Install {
			return nil, errNotInstalled
		}
		if err := m.installPackage(ctx, p.pack); err != nil {
			return nil, err
		}
		if path, err = p.find(); err != nil {
			return nil, err
		}
	}
	printed, err := m.run(ctx, folder, path, p.version...)
	if err != nil {
		return nil, err
	}
	return &Program{
		Version: versionIn(printed),
		Folder:  folder,
		Command: func(port, backend string) *exec.Cmd { return p.command(path, folder, port, backend) },
	}, nil
}

// find looks where Debian puts servers, which is not on everybody's path.
func (p proxy) find() (string, error) {
	if path, err := exec.LookPath(p.program); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + p.program)
}

// installPackage installs a Debian package, whose own server is not started.
func (m *Machine) installPackage(ctx context.Context, name string) error {
	_, err := m.run(ctx, m.Folder, "env", "RUNLEVEL=1", "DEBIAN_FRONTEND=noninteractive",
		"apt-get", "install", "-y", "--no-install-recommends", name)
	return err
}

// command writes the configuration and returns the process.
func (p proxy) command(path, folder, port, backend string) *exec.Cmd {
	_, backendPort, _ := strings.Cut(backend, ":")
	place := Place{
		Folder: folder, Port: port, Backend: backend, BackendPort: backendPort,
		AsRoot: os.Getuid() == 0, User: "www-data", ModulesFolder: "/usr/lib/apache2/modules",
	}
	// The templates are this file's own: one that fails is a mistake of the program's.
	fill := func(text string) string {
		var filled strings.Builder
		if err := template.Must(template.New("").Parse(text)).Execute(&filled, place); err != nil {
			panic(err)
		}
		return filled.String()
	}
	if err := os.WriteFile(filepath.Join(folder, "config"), []byte(fill(p.config)), 0o644); err != nil {
		return &exec.Cmd{Err: err}
	}
	var args []string
	for _, arg := range p.args {
		args = append(args, fill(arg))
	}
	return exec.Command(path, args...)
}

var version = regexp.MustCompile(`\d+\.\d+(\.\d+)?`)

// versionIn finds the version in what a program prints.
func versionIn(printed string) string { return version.FindString(printed) }
