package tokenreview

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// claims are what a token says of itself. Anybody can write that: it can only ever make a token count for less.
type claims struct {
	// Expiry is in seconds since the Unix epoch; 0: never.
	Expiry   int64     `json:"exp"`
	Audience audiences `json:"aud"`
}

func (c claims) expiry() time.Time { return time.Unix(c.Expiry, 0) }

// audiences are in a token as one string or a list.
type audiences []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audiences) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*a = audiences{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(a))
}

// check refuses, with ErrRefused, what no API server would take for a token of a ServiceAccount for our audience.
func (r *Reviewer) check(token string) (claims, error) {
	var c claims
	if len(token) > maxToken {
		return c, fmt.Errorf("%w: it has %d bytes; %d are allowed", ErrRefused, len(token), maxToken)
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, fmt.Errorf("%w: it is no JWT", ErrRefused)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &c) != nil {
		return c, fmt.Errorf("%w: it is no JWT", ErrRefused)
	}
	if !slices.Contains(c.Audience, r.config.Audience) {
		return c, fmt.Errorf("%w: it is for the audience %q and must be for %q", ErrRefused, []string(c.Audience), r.config.Audience)
	}
	if c.Expiry != 0 && r.now().After(c.expiry().Add(leeway)) {
		return c, fmt.Errorf("%w: it has expired", ErrRefused)
	}
	return c, nil
}
