package serviceconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MaxTokens is the most that the maxTokens of a retryThrottling may be.
const MaxTokens = 1000

// Throttle is a retryThrottling.
type Throttle struct {
	Tokens     int // maxTokens, 1 to MaxTokens
	MilliRatio int // tokenRatio in thousandths, 1 or more, and no more than refills the count at once
}

// NewThrottle checks the two numbers of a retryThrottling. Of the ratio, the digits past the third decimal are
// dropped. Errors begin with the name of the field.
func NewThrottle(maxTokens int, tokenRatio float64) (*Throttle, error) {
	if maxTokens < 1 || maxTokens > MaxTokens {
		return nil, fmt.Errorf("maxTokens: %d is not in (0, %d]", maxTokens, MaxTokens)
	}
	if !(tokenRatio > 0) || math.IsInf(tokenRatio, 0) {
		return nil, fmt.Errorf("tokenRatio: %v is not above 0", tokenRatio)
	}
	// In decimal digits, because 1000 × 0.029 is 28.999….
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(min(tokenRatio, MaxTokens), 'f', -1, 64), ".")
	milli, err := strconv.Atoi(whole + (fraction + "000")[:3])
	if err != nil {
		return nil, fmt.Errorf("tokenRatio: %v: %w", tokenRatio, err)
	}
	if milli == 0 {
		return nil, fmt.Errorf("tokenRatio: %v is nothing, as digits past the third decimal are dropped", tokenRatio)
	}
	return &Throttle{Tokens: maxTokens, MilliRatio: min(milli, 1000*maxTokens)}, nil
}

func parseThrottle(js json.RawMessage) (*Throttle, error) {
	var raw struct{ MaxTokens, TokenRatio json.RawMessage }
	if err := json.Unmarshal(js, &raw); err != nil {
		return nil, err
	}
	tokens, err := integer(raw.MaxTokens)
	if err != nil {
		return nil, fmt.Errorf("maxTokens: %w", err)
	}
	if !present(raw.TokenRatio) {
		return nil, errors.New("tokenRatio: it is required")
	}
	ratio, err := strconv.ParseFloat(string(raw.TokenRatio), 64)
	if err != nil {
		return nil, fmt.Errorf("tokenRatio: %s is not a number", raw.TokenRatio)
	}
	return NewThrottle(int(max(-1, min(tokens, math.MaxInt32))), ratio)
}
