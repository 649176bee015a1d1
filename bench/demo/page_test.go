package demo

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/grpchedge/hedge"
)

// TestPage reads the page at the address that is written, before there is a scheduler and with one.
func TestPage(t *testing.T) {
	var out bytes.Buffer
	p, err := servePage(t.Context(), "127.0.0.1:0", &out)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(out.String())
	read := func() string {
		response, err := http.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := read(); !strings.Contains(got, "0 calls") {
		t.Errorf("without a scheduler:\n%s", got)
	}
	s, err := hedge.New(hedge.WithAllMethods())
	if err != nil {
		t.Fatal(err)
	}
	p.show(s)
	_, _ = hedge.Do(t.Context(), s, "shop", "/shop.Items/Get", func(context.Context) (int, error) { return 1, nil })
	if got := read(); !strings.Contains(got, "/shop.Items/Get") {
		t.Errorf("with a scheduler:\n%s", got)
	}
	if p, err := servePage(t.Context(), "", io.Discard); p != nil || err != nil {
		t.Error(p, err)
	}
}
