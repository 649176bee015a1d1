// Package browser holds tests of the page of package debug in a real browser. It is a module of its own, so that what it
// needs reaches no user.
package browser
