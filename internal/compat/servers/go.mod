module github.com/grpchedge/hedge/internal/compat/servers

go 1.26.0

require (
	github.com/grpchedge/hedge v0.0.0
	go.uber.org/goleak v1.3.0
	google.golang.org/grpc v1.85.0
)

require (
	github.com/DataDog/sketches-go v1.4.8 // indirect
	github.com/felixge/httpsnoop v1.1.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/grpchedge/hedge => ../../..
