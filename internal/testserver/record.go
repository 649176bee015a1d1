package testserver

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

// A Record describes one attempt as its backend saw it.
type Record struct {
	Attempt

	Sent      []time.Time // when each message was handed to the transport
	Ended     time.Time   // when the handler returned; zero while it runs
	Code      codes.Code  // the status it returned
	Cancelled time.Time   // when it was cut short by a cancelled context; zero if it was not
}

// WasCancelled reports whether the server saw the attempt cancelled, by its
// client or with its connection, before it was through. A deadline that passed
// at the server is none.
func (r Record) WasCancelled() bool { return !r.Cancelled.IsZero() }

// records keeps the records of a cluster's backends, in order of arrival.
type records struct {
	mu   sync.Mutex
	list []*Record
}

func (r *records) add(rec *Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, rec)
}

// update changes a record that a snapshot may be reading.
func (r *records) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *records) snapshot(keep func(*Record) bool) []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Record
	for _, rec := range r.list {
		if keep(rec) {
			c := *rec
			c.Sent = slices.Clone(rec.Sent)
			out = append(out, c)
		}
	}
	return out
}

func (r *records) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = nil
}

// Records returns the records since the start or the last [Cluster.Reset], in order of arrival. It
// is empty in a cluster that only counts.
func (c *Cluster) Records() []Record {
	return c.records.snapshot(func(*Record) bool { return true })
}

// RecordsOf returns the records of the attempts of one request.
func (c *Cluster) RecordsOf(id uint64) []Record {
	return c.records.snapshot(func(r *Record) bool { return r.ID == id })
}
