package hedge

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/grpchedge/hedge/internal/pattern"
)

// WithMethods hedges the full methods that match one of the patterns, such as "/pkg.Svc/Get" or "/pkg.Svc/Get*";
// the syntax is that of [path.Match], so that * stands for any run of characters but a slash. Given more than
// once, the patterns add up. Calls of other methods are made as without hedging, and nothing is learned from them.
func WithMethods(patterns ...string) Option {
	return func(c *config) error { return addPatterns(&c.methods, "WithMethods", patterns) }
}

// WithReadOnlyMethods hedges the full methods that match one of the patterns, and says that they only read, as the
// option idempotency_level = NO_SIDE_EFFECTS of a .proto file does. The syntax is that of [WithMethods], and the two
// add up. A hedge of such a method may end the call with a final status, such as NOT_FOUND, where a hedge of any other
// method ends it only with OK: see [WithNonFatalCodes]. Where replicas lag, that NOT_FOUND may be an old answer.
func WithReadOnlyMethods(patterns ...string) Option {
	return func(c *config) error { return addPatterns(&c.readOnly, "WithReadOnlyMethods", patterns) }
}

// WithIdempotentOnly hedges only methods whose protobuf definition sets the option idempotency_level to
// NO_SIDE_EFFECTS or IDEMPOTENT, and those of [WithReadOnlyMethods]. The definition is looked up among the
// descriptors linked into the program; a method that is not found there is not hedged, and counted as
// NoDescriptor. Together with [WithMethods], a method must satisfy both.
func WithIdempotentOnly() Option {
	return func(c *config) error {
		c.idempotentOnly = true
		return nil
	}
}

// WithAllMethods hedges every method that no other option leaves out. All of them must bear to run twice: a hedged
// write may be carried out twice.
func WithAllMethods() Option {
	return func(c *config) error {
		c.all = true
		return nil
	}
}

// checkSelection refuses to guess which methods may run twice.
func (c *config) checkSelection() error {
	if len(c.methods) > 0 || len(c.readOnly) > 0 || c.idempotentOnly || c.serviceConfigOnly || c.all {
		return nil
	}
	return errors.New("hedge: New: no option says which methods may run twice; give one of WithIdempotentOnly, " +
		"WithReadOnlyMethods, WithMethods, WithServiceConfigOnly and WithAllMethods")
}

func addPatterns(to *[]string, option string, patterns []string) error {
	if len(patterns) == 0 {
		return fmt.Errorf("hedge: %s(): at least one pattern is needed", option)
	}
	for _, p := range patterns {
		if err := pattern.Check(p); err != nil {
			return fmt.Errorf("hedge: %s(%q): %w", option, p, err)
		}
	}
	*to = append(*to, patterns...)
	return nil
}

// selects reports whether the options let a method be hedged. If not, described is false when a descriptor is
// missing that might have let it.
func (c *config) selects(fullMethod string) (hedged, described bool) {
	switch {
	case pattern.Any(c.readOnly, fullMethod):
		return true, true
	case len(c.methods) > 0 && !pattern.Any(c.methods, fullMethod):
		return false, true
	case c.idempotentOnly:
		level, described := idempotencyLevel(fullMethod)
		return level != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN, described
	}
	return len(c.methods) > 0 || c.all || c.serviceConfigOnly, true
}

// onlyReads reports whether a method is known to change nothing: its descriptor or WithReadOnlyMethods says so.
func (c *config) onlyReads(fullMethod string) bool {
	if pattern.Any(c.readOnly, fullMethod) {
		return true
	}
	level, _ := idempotencyLevel(fullMethod)
	return level == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// idempotencyLevel returns what the descriptor of a method, "/service/method", says about running it twice, and
// whether there is a descriptor.
func idempotencyLevel(fullMethod string) (level descriptorpb.MethodOptions_IdempotencyLevel, described bool) {
	name := strings.ReplaceAll(strings.TrimPrefix(fullMethod, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return level, false
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return level, false
	}
	options, _ := m.Options().(*descriptorpb.MethodOptions)
	return options.GetIdempotencyLevel(), true
}
