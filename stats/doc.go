// Package stats has the plain data that a scheduler of package hedge reports. It has no behaviour of its own.
package stats
