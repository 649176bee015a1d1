// Package http_test hedges HTTP clients and servers that others wrote.
package http_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.uber.org/goleak"
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
