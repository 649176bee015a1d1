// Package etcd holds tests of this library together with etcd's Go client and its server. It is a
// module of its own, so that its dependencies reach no user.
package etcd
