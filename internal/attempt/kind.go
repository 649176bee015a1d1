package attempt

import (
	"io"
	"reflect"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// form is what a type of messages is to protobuf.
type form uint8

const (
	opaque    form = iota // something else, or more than protobuf knows of
	generated             // generated code of google.golang.org/protobuf
	dynamic               // dynamicpb
	legacy                // generated code of an older API: a struct whose tags describe all of it
)

// kind is what attempts may do with the messages of one Go type. An interface is no proof of it: a type that embeds a
// message has all its methods, and a type with the three methods of the older API may keep its state anywhere.
type kind struct {
	t    reflect.Type
	form form
	// message makes generated messages.
	message protoreflect.MessageType
	// repeats says that an opaque request may be encoded several times.
	repeats bool
	// moves says that an opaque reply may be decoded elsewhere, into a zero value, and then be copied as it is.
	moves bool
}

var (
	kinds sync.Map // of *kind by reflect.Type

	// Each call looks up its reply's kind. A program has few of them, so most are found here, in a third of the time: each
	// at a place that follows from its address, if it was the first one there.
	nearby [256]atomic.Pointer[kind]
)

// kindOf looks at each type once.
func kindOf(t reflect.Type) *kind {
	address := reflect.ValueOf(t).Pointer()
	place := &nearby[(address>>5^address>>13)%uintptr(len(nearby))]
	k := place.Load()
	if k == nil || k.t != t {
		k = newKind(t)
		place.CompareAndSwap(nil, k)
	}
	return k
}

func newKind(t reflect.Type) *kind {
	if known, ok := kinds.Load(t); ok {
		return known.(*kind)
	}
	k := &kind{t: t, form: formOf(t)}
	switch k.form {
	case generated:
		k.message = reflect.Zero(t).Interface().(proto.Message).ProtoReflect().Type()
	case opaque:
		k.repeats, k.moves = repeats(t), moves(t)
	}
	known, _ := kinds.LoadOrStore(t, k)
	return known.(*kind)
}

// formOf trusts no method of the type: what panics here would do so in a copy as well.
func formOf(t reflect.Type) (f form) {
	defer func() {
		if recover() != nil {
			f = opaque
		}
	}()
	if t == reflect.TypeFor[*dynamicpb.Message]() {
		return dynamic
	}
	if !(described{}).message(t) {
		return opaque
	}
	empty := reflect.New(t.Elem()).Interface()
	f = legacy
	if _, ok := empty.(proto.Message); ok {
		f = generated
	}
	m, _ := asProto(empty)
	if f == generated && m.ProtoReflect().Interface() != m || proto.Size(proto.Clone(m)) != 0 {
		return opaque
	}
	return f
}

// repeats reports whether values of type t can be encoded several times: nothing in them is handed over once only, as
// what a reader reads is, and a buffer that is counted down and reused when it has been sent.
func repeats(t reflect.Type) bool {
	return !contains(t, func(t reflect.Type) bool {
		return either(t, reflect.TypeFor[io.Reader]()) || either(t, reflect.TypeFor[mem.Buffer]()) || t.Kind() == reflect.Chan
	})
}

// either reports whether t or a pointer to it is what the interface describes.
func either(t, is reflect.Type) bool {
	return t.Implements(is) || t.Kind() != reflect.Interface && reflect.PointerTo(t).Implements(is)
}

// moves reports whether what a pointer of type t points to can be copied when it has been decoded. It cannot if a part
// of it is a lock or an atomic, if something in it may refer to its own memory, by a pointer, slice, closure or interface,
// or if it is a reference counted buffer, of which a losing attempt would leave some behind.
func moves(t reflect.Type) bool {
	if t.Kind() != reflect.Pointer {
		return false
	}
	inside := map[reflect.Type]bool{} // types of values that lie within the message's own memory
	array := false
	collect(t.Elem(), inside, &array)
	for part := range inside {
		if part.Kind() == reflect.Struct && reflect.PointerTo(part).Implements(reflect.TypeFor[sync.Locker]()) {
			return false
		}
	}
	return !contains(t.Elem(), func(t reflect.Type) bool {
		switch t.Kind() {
		case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Uintptr:
			return true
		case reflect.Slice:
			return array
		case reflect.Pointer:
			return inside[t.Elem()] && t.Elem().Kind() != reflect.Interface && !scalar(t.Elem())
		case reflect.Interface:
			if t.NumMethod() == 0 {
				return false // whatever a codec puts into an any, it is no part of the message
			}
			for part := range inside {
				if reflect.PointerTo(part).Implements(t) {
					return true
				}
			}
		}
		return either(t, reflect.TypeFor[mem.Buffer]())
	})
}

// collect adds t and the types that lie within it, and reports arrays, which a slice may refer to.
func collect(t reflect.Type, inside map[reflect.Type]bool, array *bool) {
	inside[t] = true
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			collect(t.Field(i).Type, inside, array)
		}
	case reflect.Array:
		*array = *array || t.Len() > 0
		collect(t.Elem(), inside, array)
	}
}

// contains reports whether is holds for t or a type within reach of it.
func contains(t reflect.Type, is func(reflect.Type) bool) bool {
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type) bool
	visit = func(t reflect.Type) bool {
		if seen[t] {
			return false
		}
		seen[t] = true
		if is(t) {
			return true
		}
		if formOf(t) != opaque {
			return false // a whole message of its own, of which generated code takes care
		}
		switch t.Kind() {
		case reflect.Map:
			return visit(t.Key()) || visit(t.Elem())
		case reflect.Pointer, reflect.Slice, reflect.Array:
			return visit(t.Elem())
		case reflect.Struct:
			for i := range t.NumField() {
				if visit(t.Field(i).Type) {
					return true
				}
			}
		}
		return false
	}
	return visit(t)
}

// asProto returns the message that gRPC's protobuf codec would encode.
func asProto(v any) (proto.Message, bool) {
	switch m := v.(type) {
	case proto.Message:
		return m, true
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(m), true
	}
	return nil, false
}
