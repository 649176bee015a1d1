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

// clone copies all that src holds to dst, which is empty, and shares no memory with it. Both are addressable. It returns false if
// that is too much, or if src has fields that only its own package can copy.
func (c *cloner) clone(dst, src reflect.Value) bool {
	if c.left--; c.left < 0 {
		return false
	}
	switch t := src.Type(); t.Kind() {
	case reflect.Pointer:
		if src.IsNil() {
			return true
		}
		c.left -= 32 // it takes as long as so many bytes; and messages may point to each other
		dst.Set(reflect.New(t.Elem()))
		return c.clone(dst.Elem(), src.Elem())
	case reflect.Interface:
		return src.IsNil() || c.within(src.Elem(), dst.Set)
	case reflect.String:
		c.left -= src.Len()
		dst.Set(src)
	case reflect.Slice, reflect.Array:
		if src.IsZero() {
			return true
		}
		if c.left -= src.Len(); c.left < 0 {
			return false
		}
		if t.Kind() == reflect.Slice {
			dst.Set(reflect.MakeSlice(t, src.Len(), src.Len()))
		}
		if t.Elem().Kind() <= reflect.Complex128 { // numbers
			reflect.Copy(dst, src)
			return true
		}
		for i := range src.Len() {
			if !c.clone(dst.Index(i), src.Index(i)) {
				return false
			}
		}
	case reflect.Map:
		if src.IsNil() {
			return true
		}
		dst.Set(reflect.MakeMap(t))
		for key, value := range src.Seq2() {
			if !c.within(key, func(k reflect.Value) { key = k }) || !c.within(value, func(v reflect.Value) { dst.SetMapIndex(key, v) }) {
				return false
			}
		}
	case reflect.Struct:
		return c.fields(dst, src)
	default:
		dst.Set(src)
		return t.Kind() <= reflect.Complex128 || src.IsZero() // a number, or no channel or function
	}
	return c.left >= 0
}

// within copies a value that is not addressable.
func (c *cloner) within(v reflect.Value, set func(reflect.Value)) bool {
	dst, src := reflect.New(v.Type()).Elem(), reflect.New(v.Type()).Elem()
	src.Set(v)
	ok := c.clone(dst, src)
	set(dst)
	return ok
}

func (c *cloner) fields(dst, src reflect.Value) bool {
	if m, ok := src.Addr().Interface().(proto.Message); ok && m.ProtoReflect().Interface() == m {
		c.left -= proto.Size(m)
		proto.Merge(dst.Addr().Interface().(proto.Message), m)
		return c.left >= 0
	}
	for i := range src.NumField() {
		to, from := dst.Field(i), src.Field(i)
		switch {
		case from.Type().Size() == 0:
		case from.Kind() == reflect.Int32 && src.Type().Field(i).Name == "XXX_sizecache": // attempts write it at the same time
		case !to.CanSet() || !c.clone(to, from): // it cannot be set if it is private
			return false
		}
	}
	return true
}
