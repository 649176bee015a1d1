// Package bigtable holds tests of this library together with Bigtable's Go client and its in-memory
// server. It is a module of its own, so that its dependencies reach no user.
package bigtable
