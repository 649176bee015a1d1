package attempt

import (
	"reflect"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
)

// form is how a type implements [grpc.CallOption]. gRPC calls unexported methods of an option, so a
// type of another package must embed an option. If it embeds grpc.EmptyCallOption, gRPC does
// nothing with it. Any other embedded option has an effect that hedging cannot see: it may write to
// the caller's memory, or choose a codec.
type form uint8

const (
	unknown form = iota
	value        // gRPC's own, or without an effect in gRPC
	pointer      // to one of gRPC's own
)

var (
	callOption  = reflect.TypeFor[grpc.CallOption]()
	emptyOption = reflect.TypeFor[grpc.EmptyCallOption]()

	forms     sync.Map // reflect.Type → form
	formsLeft atomic.Int32
)

func init() { formsLeft.Store(1024) } // more types than a program has, unless it makes types

// plain returns an option as attempts use it: a pointer to one of gRPC's own options as the option.
// known is false if gRPC may do more with the option than hedging can see.
func plain(opt grpc.CallOption) (_ grpc.CallOption, known bool) {
	switch opt.(type) {
	case nil: // gRPC panics
		return opt, false
	case grpc.StaticMethodCallOption, grpc.FailFastCallOption, grpc.MaxRecvMsgSizeCallOption,
		grpc.MaxSendMsgSizeCallOption, grpc.HeaderCallOption, grpc.TrailerCallOption: // usual: saves the lookup
		return opt, true
	}
	switch v := reflect.ValueOf(opt); formOf(v.Type()) {
	case pointer:
		if v.IsNil() { // gRPC panics
			return opt, false
		}
		return v.Elem().Interface().(grpc.CallOption), true
	case value:
		return opt, true
	}
	return opt, false
}

// formOf decides once for each type.
func formOf(t reflect.Type) form {
	if f, ok := forms.Load(t); ok {
		return f.(form)
	}
	f := unknown
	switch {
	case isOwn(t) || isEmpty(t, 0):
		f = value
	case t.Kind() == reflect.Pointer && isOwn(t.Elem()):
		f = pointer
	}
	if formsLeft.Add(-1) >= 0 {
		forms.Store(t, f)
	}
	return f
}

func isOwn(t reflect.Type) bool { return t.PkgPath() == emptyOption.PkgPath() }

// isEmpty reports whether all options that a struct, or the struct that a pointer points to, embeds
// are grpc.EmptyCallOption or embed only that. It follows at most eight levels: a type may embed a
// pointer to itself.
func isEmpty(t reflect.Type, level int) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == emptyOption {
		return true
	}
	if t.Kind() != reflect.Struct || isOwn(t) || level > 8 {
		return false
	}
	for i := range t.NumField() {
		f := t.Field(i)
		isOption := f.Anonymous && (f.Type.Implements(callOption) || reflect.PointerTo(f.Type).Implements(callOption))
		if isOption && !isEmpty(f.Type, level+1) {
			return false
		}
	}
	return true
}
