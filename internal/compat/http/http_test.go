// Package http_test hedges HTTP clients and servers that others wrote.
package http_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) {
	// Improbable's proxy imports it, and it starts a goroutine.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/desertbit/timer.timerRoutine"))
}

// answer is what servers give for a number: a few kilobytes that no other number has.
func answer(n string) []byte {
	sum := sha256.Sum256([]byte(n))
	return bytes.Repeat([]byte(hex.EncodeToString(sum[:])), 50)
}

// serveOpenAI streams the answer to a prompt.
func serveOpenAI(t *testing.T) http.Handler {
	prompt := regexp.MustCompile(`prompt (\d+)`)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		for all := answer(prompt.FindStringSubmatch(string(body))[1]); len(all) > 0; all = all[400:] {
			fmt.Fprintf(w, `data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%q}}]}`+
				"\n\n", all[:400])
			w.(http.Flusher).Flush()
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
}

// serveS3 has ten objects.
func serveS3(t *testing.T) http.Handler {
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		body := answer(strconv.Itoa(n))
		if _, err := backend.PutObject("bucket", strconv.Itoa(n), map[string]string{}, bytes.NewReader(body),
			int64(len(body)), nil); err != nil {
			t.Fatal(err)
		}
	}
	return gofakes3.New(backend).Server()
}

func dialS3(t *testing.T, c *http.Client, url string) caller {
	client := s3.New(s3.Options{
		HTTPClient: c, BaseEndpoint: &url, UsePathStyle: true, Region: "eu-west-1", Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
		}),
	})
	return func(ctx context.Context, n int) error {
		out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("bucket"),
			Key: aws.String(strconv.Itoa(n % 10))})
		if err != nil {
			return err
		}
		defer out.Body.Close()
		all, err := io.ReadAll(out.Body)
		if err != nil {
			return err
		}
		return check(all, n%10)
	}
}

// configMap is an object of Kubernetes' API with the answer n.
func configMap(n string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"answer": string(answer(n))},
		"metadata": map[string]any{"name": n, "namespace": "default", "resourceVersion": "1"}}
}

// serveKubernetes gets, lists and watches config maps. A watch has one event at its start, and one
// for every twelfth object that is read.
func serveKubernetes(t *testing.T) http.Handler {
	var mu sync.Mutex
	watches := map[chan string]bool{}
	mux := http.NewServeMux()
	reply := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /api/v1/namespaces/default/configmaps/{n}", func(w http.ResponseWriter, r *http.Request) {
		if n, _ := strconv.Atoi(r.PathValue("n")); n%12 == 0 {
			mu.Lock()
			for events := range watches {
				events <- r.PathValue("n")
			}
			mu.Unlock()
		}
		reply(w, configMap(r.PathValue("n")))
	})
	mux.HandleFunc("GET /api/v1/namespaces/default/configmaps", func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("watch") {
			reply(w, map[string]any{"apiVersion": "v1", "kind": "ConfigMapList", "items": []any{configMap("7")},
				"metadata": map[string]any{"resourceVersion": "1"}})
			return
		}
		events := make(chan string, 1000)
		events <- r.URL.Query().Get("resourceVersion")
		mu.Lock()
		watches[events] = true
		mu.Unlock()
		defer func() { mu.Lock(); delete(watches, events); mu.Unlock() }()
		for {
			select {
			case n := <-events:
				reply(w, map[string]any{"type": "MODIFIED", "object": configMap(n)})
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	return mux
}

// dialKubernetes gets an object by each call. One in twelve is seen by a watch too that lasts for the whole
// test, and others list or begin a watch of their own.
func dialKubernetes(t *testing.T, c *http.Client, url string) caller {
	client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: url, QPS: -1}, c)
	if err != nil {
		t.Fatal(err)
	}
	maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
	next := func(ctx context.Context, w watch.Interface, n int) error {
		select {
		case e, open := <-w.ResultChan():
			if !open || e.Type != watch.Modified {
				return fmt.Errorf("the watch has ended, or has an error: %v", e)
			}
			return checkObject(e.Object, n)
		case <-ctx.Done():
			return errors.New("no event")
		}
	}
	begin := func(ctx context.Context, n int) (watch.Interface, error) {
		w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: strconv.Itoa(n)})
		if err != nil {
			return nil, err
		}
		return w, next(ctx, w, n)
	}
	lasting, err := begin(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lasting.Stop)
	return func(ctx context.Context, n int) error {
		switch n % 12 {
		case 3:
			list, err := maps.List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			return checkObject(&list.Items[0], 7)
		case 6:
			own, err := begin(ctx, n)
			if own != nil {
				own.Stop()
			}
			return err
		}
		got, err := maps.Get(ctx, strconv.Itoa(n), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if n%12 == 0 {
			err = next(ctx, lasting, n)
		}
		return errors.Join(err, checkObject(got, n))
	}
}

func checkObject(object runtime.Object, n int) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	data, _ := fields["data"].(map[string]any)
	got, _ := data["answer"].(string)
	return check([]byte(got), n)
}
