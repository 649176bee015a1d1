module github.com/grpchedge/hedge

go 1.25.0

require (
	github.com/DataDog/sketches-go v1.4.8
	github.com/felixge/httpsnoop v1.1.0
	github.com/google/go-cmp v0.7.0
	go.uber.org/atomic v1.11.0
	go.uber.org/goleak v1.3.0
	golang.org/x/net v0.57.0
	google.golang.org/grpc v1.84.0
	google.golang.org/protobuf v1.36.12
)

require (
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.40.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260706201446-f0a921348800 // indirect
)
