// Package browser holds tests of the debug page in a real browser. It is a module of its own, so
// that its dependencies reach no user.
package browser
