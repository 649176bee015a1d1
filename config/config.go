// Package config makes the options of package hedge from JSON. Import it as hedgeconfig beside
// another package config:
//
//	import hedgeconfig "github.com/grpchedge/hedge/config"
//
// The configuration is one JSON object. Each field is named after an option, without its With:
// "maxHedges": 2 is hedge.WithMaxHedges(2). Options that take a Go function have no field.
// docs/configuration.md of this module lists all fields. proto/configpb/config.proto is the schema,
// read as protobuf's JSON.
package config

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/proto/configpb"
)

// Parse returns the options of a JSON object, for [hedge.New] and [hedge.Scheduler.Update]. It
// returns an error with line and column for malformed JSON, an unknown or repeated field, and a
// value of the wrong type; and an error with the option for a value out of range and for a field
// that cannot be set there. null is the same as no field. Parse may be called concurrently.
//
// New and Update check the options together: for example, one of them must select methods.
func Parse(data []byte) ([]hedge.Option, error) {
	m := &configpb.Options{}
	if err := protojson.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("hedge: config: %w", err)
	}
	opts, err := options(m, 0)
	if err == nil {
		_, err = hedge.New(append(opts, hedge.WithAllMethods())...) // which finds values out of range
	}
	if err != nil {
		return nil, fmt.Errorf("hedge: config: %s", strings.ReplaceAll(err.Error(), "hedge: ", ""))
	}
	return opts, nil
}
