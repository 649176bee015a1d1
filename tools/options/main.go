// Command options writes the table of package config: the option of each field of its schema. "make
// generate" writes config/fields.go with it.
package main

import (
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"
)

func main() {
	schema, err := os.ReadFile("../proto/configpb/config.proto")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(`// Code generated from proto/configpb/config.proto by "make generate". DO NOT EDIT.

package config

import "github.com/grpchedge/hedge"

// fields has the option of each field.
var fields = map[string]any{
`)
	message := regexp.MustCompile(`(?s)message Options \{.*?\n\}`).Find(schema)
	for _, f := range regexp.MustCompile(`(?m)^  \S.* (\w+) = \d+;`).FindAllSubmatch(message, -1) {
		option := regexp.MustCompile(`(^|_).`).ReplaceAllStringFunc(string(f[1]),
			func(s string) string { return strings.ToUpper(strings.TrimLeft(s, "_")) })
		fmt.Printf("\t%q: hedge.With%s,\n", f[1], option)
	}
	fmt.Println("}")
}
