// Package config makes the options of package hedge from JSON. Import it as hedgeconfig where config is taken:
//
//	import hedgeconfig "github.com/grpchedge/hedge/config"
//
// The configuration is one JSON object. Each field has the name of an option without its With: "maxHedges": 2 is
// hedge.WithMaxHedges(2). Options that take a Go function have no field. docs/configuration.md of this module lists all fields,
// and proto/configpb/config.proto is the schema: the JSON is protobuf's JSON of it.
//
// Parse may be called concurrently.
package config

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/proto/configpb"
)

// Parse returns the options that a JSON object describes, for [hedge.New] and [hedge.Scheduler.Update]. An error names what is
// wrong: text that is not JSON, an unknown field, one that is given twice, or a value of another kind, with its line and column;
// a value out of range, or a field that cannot be set where it is, with its option. null is the same as leaving a field out.
//
// New and Update check the options together. For example, one of them must say which methods may run twice.
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
