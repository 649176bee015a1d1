package attempt

import (
	"reflect"

	"google.golang.org/protobuf/proto"
)

// cloner copies a message of the older API field by field. protobuf would copy it by the type's own methods, which may copy less
// than they encode, or share the caller's memory.
type cloner struct {
	left int // of [MaxCopy]: bytes, and about one for each value
}

func (c *cloner) spend(n int) {
	if c.left -= n; c.left < 0 {
		panic("too large, or endless")
	}
}

// clone copies all that src holds to dst, which is empty, and shares no memory with it. Both are addressable. It panics if that is
// too much, or if src has fields that only its own package can copy.
func (c *cloner) clone(dst, src reflect.Value) {
	c.spend(1)
	dst.SetZero() // panics if the field is private
	switch t := src.Type(); t.Kind() {
	case reflect.Pointer:
		if !src.IsNil() {
			c.spend(32) // it takes as long as so many bytes
			dst.Set(reflect.New(t.Elem()))
			c.clone(dst.Elem(), src.Elem())
		}
	case reflect.Interface:
		if !src.IsNil() {
			dst.Set(c.copied(src.Elem()))
		}
	case reflect.String:
		c.spend(src.Len())
		dst.Set(src)
	case reflect.Slice:
		if c.spend(src.Len()); src.IsNil() {
			return
		}
		dst.Set(reflect.MakeSlice(t, src.Len(), src.Len()))
		if t.Elem().Kind() <= reflect.Complex128 { // numbers
			reflect.Copy(dst, src)
			return
		}
		for i := range src.Len() {
			c.clone(dst.Index(i), src.Index(i))
		}
	case reflect.Map:
		if !src.IsNil() {
			dst.Set(reflect.MakeMap(t))
			for key, value := range src.Seq2() {
				dst.SetMapIndex(c.copied(key), c.copied(value))
			}
		}
	case reflect.Struct:
		c.fields(dst, src)
	case reflect.Array:
		for i := range src.Len() {
			c.clone(dst.Index(i), src.Index(i))
		}
	case reflect.Chan, reflect.Func, reflect.UnsafePointer:
		if !src.IsNil() {
			panic("it cannot be copied")
		}
	default:
		dst.Set(src)
	}
}

// copied copies a value that is not addressable.
func (c *cloner) copied(v reflect.Value) reflect.Value {
	dst, src := reflect.New(v.Type()).Elem(), reflect.New(v.Type()).Elem()
	src.Set(v)
	c.clone(dst, src)
	return dst
}

func (c *cloner) fields(dst, src reflect.Value) {
	if m, ok := src.Addr().Interface().(proto.Message); ok && m.ProtoReflect().Interface() == m {
		c.spend(proto.Size(m))
		proto.Merge(dst.Addr().Interface().(proto.Message), m)
		return
	}
	for i := range src.NumField() {
		from := src.Field(i)
		cache := from.Kind() == reflect.Int32 && src.Type().Field(i).Name == "XXX_sizecache" // attempts write it at the same time
		if from.Type().Size() > 0 && !cache {
			c.clone(dst.Field(i), from)
		}
	}
}
