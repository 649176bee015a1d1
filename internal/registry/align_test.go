package registry_test

import (
	"reflect"
	"testing"

	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/settings"
)

// TestAlignment lets no 64-bit value of go.uber.org/atomic be in a struct but as its first field:
// those are not aligned on 32-bit machines, where using them panics. The types of sync/atomic are.
func TestAlignment(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var check func(reflect.Type, string, bool)
	check = func(typ reflect.Type, path string, first bool) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
			check(typ.Elem(), path, typ.Kind() != reflect.Array || first)
			return
		case reflect.Struct:
		default:
			return
		}
		if typ.PkgPath() == "go.uber.org/atomic" {
			switch typ.Name() {
			case "Int64", "Uint64", "Duration", "Float64":
				if !first {
					t.Errorf("%s is a %v, which is not aligned", path, typ)
				}
			}
			return
		}
		if key := typ; first {
			if seen[key] {
				return
			}
			seen[key] = true
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			check(f.Type, path+"."+f.Name, first && i == 0)
		}
	}
	for _, v := range []any{registry.Registry{}, registry.Target{}, registry.Method{}, registry.Class{},
		call.Call{}, settings.Config{}, settings.Settings{}} {
		check(reflect.TypeOf(v), reflect.TypeOf(v).Name(), true)
	}
}
