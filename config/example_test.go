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
