package attempt

import (
	"reflect"

	"google.golang.org/protobuf/proto"
)

// Content is what a caller's reply holds before an attempt receives into it.
type Content struct{ copied any } // nil: nothing

// Content returns what the caller's reply holds. No attempt may be receiving into it yet. For an empty protobuf message it
// does not allocate.
func (r *Reply) Content() Content {
	if r.proto != nil {
		if proto.Size(r.caller.(proto.Message)) == 0 {
			return Content{}
		}
		copied, _ := CopyRequest(r.caller)
		return Content{copied}
	}
	v := reflect.ValueOf(r.caller).Elem()
	if v.IsZero() {
		return Content{}
	}
	copied := reflect.New(v.Type())
	copied.Elem().Set(v)
	return Content{copied.Interface()}
}

// Restore puts the content back into the caller's reply. No attempt may use the reply any more. A protobuf message that still
// has this content is not touched, because the caller may have kept pointers into it.
func (r *Reply) Restore(c Content) {
	if c.copied == nil {
		c.copied = r.Make()
	}
	if r.proto != nil && proto.Equal(r.caller.(proto.Message), c.copied.(proto.Message)) {
		return
	}
	r.Take(c.copied)
}
