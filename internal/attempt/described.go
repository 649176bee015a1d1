package attempt

import (
	"reflect"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/runtime/protoimpl"
)

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
