package attempt

import (
	"io"
	"reflect"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/runtime/protoimpl"
	"google.golang.org/protobuf/types/dynamicpb"
)

// form says how protobuf handles a type of messages.
type form uint8

const (
	opaque    form = iota // no protobuf message, or one with state that protobuf does not describe
	generated             // generated code of google.golang.org/protobuf
	dynamic               // dynamicpb
	legacy                // generated code of an older API: a struct whose tags describe all of it
)

// kind says what attempts may do with the messages of one Go type. That a type implements proto.Message does not suffice: a
// type that embeds a message has all its methods, and a type with the methods of the older API may keep its state anywhere.
type kind struct {
	t    reflect.Type
	form form
	// message makes generated messages.
	message protoreflect.MessageType
	// repeatable says that an opaque request can be encoded several times.
	repeatable bool
}

var kinds sync.Map // of *kind by reflect.Type

// kindOf returns the kind of a type. Each type is examined once.
func kindOf(t reflect.Type) *kind {
	if known, ok := kinds.Load(t); ok {
		return known.(*kind)
	}
	k := &kind{t: t, form: formOf(t)}
	switch k.form {
	case generated:
		k.message = reflect.Zero(t).Interface().(proto.Message).ProtoReflect().Type()
	case opaque:
		k.repeatable = repeatable(t)
	}
	known, _ := kinds.LoadOrStore(t, k)
	return known.(*kind)
}

// formOf returns the form of a type. If a method of the type panics here, it would also panic in a copy: the type is opaque.
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
	m := asProto(empty)
	if f == generated && m.ProtoReflect().Interface() != m || proto.Size(proto.Clone(m)) != 0 {
		return opaque
	}
	return f
}

// repeatable reports whether values of type t can be encoded several times. They cannot if they contain a reader or a
// channel, which can be read once, or a reference-counted buffer, which is freed when it has been sent.
func repeatable(t reflect.Type) bool {
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type) bool
	visit = func(t reflect.Type) bool {
		if seen[t] {
			return true
		}
		seen[t] = true
		if implements(t, reflect.TypeFor[io.Reader]()) || implements(t, reflect.TypeFor[mem.Buffer]()) {
			return false
		}
		if formOf(t) != opaque {
			return true // a protobuf message, which protobuf encodes correctly
		}
		switch t.Kind() {
		case reflect.Chan:
			return false
		case reflect.Map:
			return visit(t.Key()) && visit(t.Elem())
		case reflect.Pointer, reflect.Slice, reflect.Array:
			return visit(t.Elem())
		case reflect.Struct:
			for i := range t.NumField() {
				if !visit(t.Field(i).Type) {
					return false
				}
			}
		}
		return true
	}
	return visit(t)
}

// implements reports whether t or a pointer to t implements the interface is.
func implements(t, is reflect.Type) bool {
	return t.Implements(is) || t.Kind() != reflect.Interface && reflect.PointerTo(t).Implements(is)
}

// asProto returns the message that gRPC's protobuf codec would encode for a message of a described type.
func asProto(v any) proto.Message {
	if m, ok := v.(proto.Message); ok {
		return m
	}
	return protoadapt.MessageV2Of(v.(protoadapt.MessageV1))
}

// described holds the message types that are structs which protobuf describes in full, or are being examined. Copying a
// message of such a type as protobuf copies all of it.
type described map[reflect.Type]bool

// message reports whether t is such a type. Its methods are called on nil and may panic.
func (d described) message(t reflect.Type) bool {
	if d[t] {
		return true
	}
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return false
	}
	d[t] = true
	switch m := reflect.Zero(t).Interface().(type) {
	case proto.Message:
		info, ok := m.ProtoReflect().Type().(*protoimpl.MessageInfo)
		if !ok || info.GoReflectType != t { // a message of another type, which t embeds or wraps
			return false
		}
	case protoadapt.MessageV1:
	default:
		return false
	}
	for i := range t.Elem().NumField() {
		if !d.field(t.Elem().Field(i)) {
			return false
		}
	}
	return true
}

// field reports whether protobuf knows of a struct's field.
func (d described) field(f reflect.StructField) bool {
	switch {
	case f.Tag.Get("protobuf") != "":
		return d.value(f.Type)
	case f.Tag.Get("protobuf_oneof") != "":
		return f.Type.Kind() == reflect.Interface
	case f.Type.Size() == 0:
		return true
	}
	switch f.Name {
	case "state":
		return f.Type == reflect.TypeFor[protoimpl.MessageState]()
	case "sizeCache", "XXX_sizecache":
		return f.Type == reflect.TypeFor[protoimpl.SizeCache]()
	case "unknownFields", "XXX_unrecognized":
		return f.Type == reflect.TypeFor[protoimpl.UnknownFields]()
	case "extensionFields", "XXX_InternalExtensions", "XXX_extensions":
		return f.Type == reflect.TypeFor[protoimpl.ExtensionFields]()
	case "lazyFields", "XXX_lazyUnmarshalInfo":
		return f.Type == reflect.TypeFor[protoimpl.LazyUnmarshalInfo]()
	case "XXX_raceDetectHookData":
		return f.Type == reflect.TypeFor[protoimpl.RaceDetectHookData]()
	case "XXX_presence":
		return f.Type.Kind() == reflect.Array && f.Type.Elem().Kind() == reflect.Uint32
	}
	return false
}

// value reports whether protobuf describes a field of type t. It describes a struct only through a pointer.
func (d described) value(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64, reflect.String:
		return true
	case reflect.Slice:
		return t.Elem().Kind() == reflect.Uint8 || d.value(t.Elem())
	case reflect.Map:
		return d.value(t.Key()) && d.value(t.Elem())
	case reflect.Pointer:
		if t.Elem().Kind() == reflect.Struct {
			return d.message(t)
		}
		return d.value(t.Elem())
	}
	return false
}
