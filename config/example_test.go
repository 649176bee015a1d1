package config_test

import (
	"fmt"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/config"
)

// The configuration comes from a file.
func ExampleParse() {
	opts, err := config.Parse([]byte(`{
		"readOnlyMethods": ["/pkg.Svc/Get*"],
		"methodOptions": {"/pkg.Svc/GetAll": {"trigger": {"fixed": "300ms"}}}
	}`))
	if err != nil {
		panic(err)
	}
	_, err = hedge.New(opts...)
	fmt.Println(err)

	_, err = config.Parse([]byte(`{"methodOptions": {"/pkg.Svc/GetAll": {"maxHedges": 9}}}`))
	fmt.Println(err)
	// Output:
	// <nil>
	// hedge: config: WithMethodOptions("/pkg.Svc/GetAll"): WithMaxHedges(9): must be 0 to 4
}

// The file of a running process changes. A mistake leaves the options in force, but "off": true takes
// effect.
func ExampleUpdate() {
	s, err := hedge.New(hedge.WithOff(true)) // until the first update
	if err != nil {
		panic(err)
	}
	fmt.Println(config.Update(s, []byte(`{"readOnlyMethods": ["/pkg.Svc/Get*"]}`)))
	fmt.Println(config.Update(s, []byte(`{"readOnlyMethods": ["/pkg.Svc/Get*"], "off": true, "maxHedges": 9}`)))
	// Output:
	// <nil>
	// hedge: config: WithMaxHedges(9): must be 0 to 4
}
